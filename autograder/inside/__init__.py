"""What runs on the student's side: mounted into the sandbox without the rest of the course, and begun by `start`.

It imports from itself as `from . import …`, since it has another name there. `plain`, `shell`, `wire` and `usage` serve both sides.
"""
