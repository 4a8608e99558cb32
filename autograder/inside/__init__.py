"""What runs on the student's side: mounted into the sandbox as a folder of plain modules, without the rest of the course.

`wire` is the one module that both sides use.
"""
