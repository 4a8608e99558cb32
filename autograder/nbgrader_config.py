"""nbgrader's settings for this course. Run `nbgrader` commands from this folder: a config given by path from elsewhere is not read.

`python -m autograder` reads the same file, with a course folder of its own.
"""

import os

c = get_config()  # noqa: F821  (nbgrader provides it)

c.CourseDirectory.course_id = "specdec"
c.CourseDirectory.ignore = [
    ".ipynb_checkpoints", "*.pyc", "__pycache__", ".pytest_cache", "*.py", "*.md", "*.json", "*.csv", "*.db",
]  # fmt: skip

# What a student finds in place of a solution. The check's message says what to do.
c.ClearSolutions.code_stub = {"python": '# YOUR CODE HERE\nraise NotImplementedError("not written yet")'}

# A check stops an endless loop by itself, after 5 to 45 seconds; this stops everything else.
c.Execute.timeout = int(os.environ.get("SPECDEC_CELL_SECONDS", "90"))
c.Execute.kernel_name = "python3"
c.Execute.extra_arguments = ["--HistoryManager.hist_file=:memory:"]

# nbgrader's own list, with an execution that outlives a dead kernel and a student's warnings.
c.Autograde.autograde_preprocessors = [
    "autograder.execution.Execute",
    "autograder.execution.KeepWarningsOutOfMarks",
    "nbgrader.preprocessors.IgnorePattern",
    "nbconvert.preprocessors.ClearMetadataPreprocessor",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]

# Feedback shows a hidden check's message, not its code.
c.GenerateFeedback.preprocessors = [
    "nbgrader.preprocessors.GetGrades",
    "autograder.execution.HideHiddenTests",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
