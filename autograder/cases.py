"""What becomes of every odd thing that comes in: one table, which the instructor's guide shows and the tests go through."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """status: a key of `marks.STATUS`; "graded" means that the notebook goes to the checks, whatever they find."""

    name: str
    comes_in: str
    outcome: str
    status: str = "graded"


CASES = [
    Case("no cell ids", "cells without ids (older editors)", "cells are known by nbgrader's metadata, or by their text"),
    Case("stripped metadata", "all metadata stripped by another editor", "cells are known by their text, solutions by the function"),
    Case("duplicated checks", "check cells duplicated", "the original checks count, once"),
    Case("deleted checks", "check cells deleted", "the original checks count"),
    Case("edited checks", "check cells edited, points changed", "the original checks and points count"),
    Case("deleted solution", "a solution cell deleted", "graded as not written; the message says which"),
    Case("two definitions", "two cells that define the same function", "run in order, so the last one counts; the message says so"),
    Case("added cells", "cells added", "run where they stand, so helper functions work"),
    Case("old format", "nbformat 3", "read as any other"),
    Case("large outputs", "outputs of 50 MB", "read; outputs are dropped"),
    Case("renamed", "another file name, the only notebook in the folder", "graded; the message says so"),
    Case("several", "several notebooks, none called exercise.ipynb", "none is graded: rename the one that counts", "missing"),
    Case("resubmitted", "exercise.ipynb beside exercise-1.ipynb, exercise-2.ipynb, …", "the highest number counts, the others are noted"),
    Case("inbound", "two submissions in nbgrader's inbound folder",
         "the latest counts (of two at one time the last by name), others are noted"),
    Case("canvas late", "a late upload in a Canvas download", "graded; the message says that Canvas called it late"),
    Case("canvas twice", "several notebooks of one student in a Canvas download",
         "the one called exercise counts, then the highest attempt, then Canvas's highest file number, then the name; others are noted"),
    Case("canvas other", "a Canvas upload that is no notebook", "named in the message", "missing"),
    Case("zip traversal", "a name in a zip with a folder, or that is not Canvas's", "not unpacked", "misplaced"),
    Case("zip bomb", "a file in a zip that unpacks to more than 100 MB", "unpacking stops there", "refused"),
    Case("zip link", "a link in a zip", "not unpacked", "refused"),
    Case("not json", "a file that is not JSON", "the message says what was met", "unreadable"),
    Case("no cells", "JSON without cells", "the message says so", "unreadable"),
    Case("not utf-8", "a file in another encoding than UTF-8", "the message says so", "unreadable"),
    Case("too large", "a file of more than 100 MB, or with millions of small parts", "not read", "refused"),
    Case("link", "a link in place of a notebook or folder, wherever it points", "never followed", "refused"),
    Case("hard link", "a file that has a second name (a hard link), which may be somebody else's notebook",
         "not read. nbgrader copies files; grade a plain copy of a backup that links them", "refused"),
    Case("pipe", "a pipe or a device called exercise.ipynb", "not opened", "refused"),
    Case("folder", "a folder called exercise.ipynb", "not looked into", "refused"),
    Case("empty", "a student's folder that is empty", "a row of its own", "empty"),
    Case("no notebook", "an assignment's folder without a notebook", "a row of its own", "missing"),
    Case("unknown", "a folder called like no assignment", "the message suggests one", "unknown"),
    Case("misplaced", "a file outside a student's or an assignment's folder", "a row of its own", "misplaced"),
    Case("namesakes", "two students whose names differ only in upper and lower case", "two students; the messages say so"),
]  # fmt: skip


@dataclass(frozen=True)
class Notebook:
    """A right notebook of 10 points that somebody did something to; points and status are what it has after that."""

    name: str
    what: str
    outcome: str
    points: float = 10
    status: str = "graded"


NOTEBOOKS = [
    Notebook("given cell extended", "imports or functions added to a given cell",
             "the student's version is run, then the released one; the message says which cell"),
    Notebook("given cell rewritten", "a given cell rewritten", "the same; the message says which names are as released"),
    Notebook("given cell fails", "a given cell with a line that raises", "what stands before that line is there"),
    Notebook("stripped and extended", "a given cell extended, and all metadata stripped", "the cell is known by half of its lines"),
    Notebook("defined in a check", "a function or an import in a check cell", "lost, with what needs it; the message says so", 3),
    Notebook("merged", "two solution cells merged into one", "both functions count"),
    Notebook("in the given cell", "a solution in a given cell, its own cell deleted", "it counts"),
    Notebook("assigned", "a solution that is assigned, f = lambda …, and all metadata stripped", "it counts"),
    Notebook("display", "`display(…)`", "prints"),
    Notebook("timed", "`%time`, `%timeit`, `%prun`, `%%time`, `%%timeit`, `%%capture`", "what they are about is run, once"),
    Notebook("timed and stripped", "the same, and all metadata stripped", "the same"),
    Notebook("await", "`await` outside a function", "works"),
    Notebook("writefile", "`%%writefile helper.py`, then `import helper` or `%run helper.py`", "works; the file lies in an empty folder"),
    Notebook("beside", "`import helper`, a file beside the notebook that no cell writes",
             "not there, with what needs it; notebook and message say so", 3),
    Notebook("like a library", "`%%writefile json.py`, then `import json`",
             "imports Python's own, as in most notebooks; notebook and message say so"),
    Notebook("harmless magics", "`%matplotlib`, `%load_ext`, `%config`, `%%html`, `help?` and the like", "nothing happens"),
    Notebook("main", "pickling, `import __main__`, `from __future__ import …`", "as in a notebook"),
    Notebook("commands", "`!pip install x`, `%pip`, `%%bash`", "not run, with what needs it; notebook and message say so", 3),
    Notebook("other languages", "`%%cython` and other languages", "not run, with what needs it; notebook and message say so", 3),
    Notebook("endless cell", "a cell of the student's own that takes more than 10 seconds", "left out; the message says so"),
    Notebook("needed endless cell", "the same, with something in it that a solution needs", "left out; the message says so", 3, "timeout"),
    Notebook("ending cell", "a cell that ends Python", "left out; the message says so"),
    Notebook("failing cell", "a cell that raises", "the other cells are run; the message says so where points are missing"),
    Notebook("nothing written", "nothing is written", "each task is named once", 0),
    Notebook("one task left", "one task is not written", "it is named once", 6),
]  # fmt: skip

HEAD = "| what comes in | outcome | status |\n|---|---|---|\n"
NOTEBOOK_HEAD = "| what a student did to a notebook of 10 points | outcome | points |\n|---|---|---|\n"


def table() -> str:
    """The table of what comes in, as the guide shows it."""
    return HEAD + "".join(f"| {case.comes_in} | {case.outcome} | `{case.status}` |\n" for case in CASES)


def notebooks() -> str:
    """The table of notebooks, as the guide shows it."""
    return NOTEBOOK_HEAD + "".join(f"| {case.what} | {case.outcome} | {case.points:g} |\n" for case in NOTEBOOKS)
