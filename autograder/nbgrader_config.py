"""nbgrader's settings for this course. Run `nbgrader` commands from this folder: a config given by path from elsewhere is not read.

`python -m autograder` reads the same file, with a course folder of its own.
"""

c = get_config()  # noqa: F821  (nbgrader provides it)

c.CourseDirectory.course_id = "specdec"
c.CourseDirectory.ignore = [
    ".ipynb_checkpoints", "*.pyc", "__pycache__", ".pytest_cache", "*.py", "*.md", "*.json", "*.csv", "*.db",
]  # fmt: skip

# What a student finds in place of a solution. The check's message says what to do.
c.ClearSolutions.code_stub = {"python": '# YOUR CODE HERE\nraise NotImplementedError("not written yet")'}
