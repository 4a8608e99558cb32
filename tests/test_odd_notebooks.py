"""What students do to a notebook that is right: every row of `cases.NOTEBOOKS` is made here, judged, and has the points that it says."""

import json

import nbformat
import pytest

from autograder import cases, course, zoo
from autograder.inside.shell import not_run
from autograder.intake.rebuilding import bound
from autograder.judging import judge as judging
from autograder.judging import sandbox
from autograder.judging.judge import Code, Exercise, Judge, Settings, released
from autograder.zoo import verdicts

B = "04-speedup"
TOKENS = "def expected_tokens(alpha, k):\n    return sum(alpha**i for i in range(k + 1))\n"
SPEEDUP = "def speedup(alpha, k, c):\n    return expected_tokens(alpha, k) / (1 + c * k)\n"
BEST = "def optimal_k(alpha, c, k_max=64):\n    best = max(range(k_max + 1), key=lambda k: speedup(alpha, k, c))\n    return best, speedup(alpha, best, c)\n"  # noqa: E501


@pytest.fixture(scope="module")
def judge():
    one = Judge(Settings(unsafe=bool(sandbox.unavailable())))
    yield one
    one.close()


class Notebook:
    """The right notebook of chapter 04, to be changed. Cells are known by their ids."""

    def __init__(self):
        self.cells = [dict(cell) for cell in zoo.filled(B, released(B)).cells]
        self["expected-tokens"], self["speedup"], self["optimal-k"] = TOKENS, SPEEDUP, BEST

    def __getitem__(self, name):
        return next(cell for cell in self.cells if cell.get("id") == name)["source"]

    def __setitem__(self, name, source):
        next(cell for cell in self.cells if cell.get("id") == name)["source"] = source

    def drop(self, *names):
        self.cells = [cell for cell in self.cells if cell["id"] not in names]

    def own(self, *sources):
        """The student's own cells, before the first task."""
        place = next(n for n, cell in enumerate(self.cells) if cell["id"] == "expected-tokens")
        made = [{"cell_type": "code", "source": s, "metadata": {}, "id": f"own-{i}"} for i, s in enumerate(sources)]
        self.cells[place:place] = made

    def stripped(self):
        self.cells = [{"cell_type": cell["cell_type"], "source": cell["source"], "metadata": {}} for cell in self.cells]

    def bytes(self):
        return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": self.cells}).encode()


def added_to_a_given_cell(notebook):
    notebook["cell-01"] += "\nfrom functools import lru_cache\n\ndef power(a, i):\n    return a**i"
    notebook["expected-tokens"] = "@lru_cache\n" + TOKENS.replace("alpha**i", "power(alpha, i)")


def given_cell_rewritten(notebook):
    notebook["cell-01"] = "import numpy as math\nimport numpy as np\nONE = np.exp(0.0)"
    notebook["expected-tokens"] = TOKENS.replace("alpha**i", "float(ONE) * alpha ** math.floor(i)")


def given_cell_that_fails(notebook):
    notebook["cell-01"] = "HALF = 0.5\n" + notebook["cell-01"] + "\nimport no_such_library"
    notebook["expected-tokens"] = TOKENS.replace("alpha**i", "2 * HALF * alpha**i")


def stripped_and_extended(notebook):
    added_to_a_given_cell(notebook)
    notebook.stripped()


def in_a_check_cell(notebook):
    notebook["check-expected-tokens"] = "def power(a, i):\n    return a**i\n" + notebook["check-expected-tokens"]
    notebook["speedup"] = SPEEDUP.replace("expected_tokens(alpha, k)", "sum(power(alpha, i) for i in range(k + 1))")


def merged(notebook):
    notebook["expected-tokens"] += "\n\n" + notebook["speedup"]
    notebook.drop("speedup")


def into_the_given_cell(notebook):
    notebook["cell-01"] += "\n\n" + TOKENS
    notebook.drop("expected-tokens")


def assigned(notebook):
    notebook["speedup"] = "speedup = lambda alpha, k, c: expected_tokens(alpha, k) / (1 + c * k)"
    notebook.stripped()


def displayed(notebook):
    notebook["expected-tokens"] = "display('τ', 1)\n" + TOKENS


def timed(notebook):
    notebook["cell-01"] = "%time ONE = 1\nTWO = %time ONE + 1\n" + notebook["cell-01"]
    notebook["expected-tokens"] = "%%time\n" + TOKENS.replace("alpha**i", "ONE * SEEN * alpha**i")
    notebook["speedup"] = "%%timeit -n1 -r1\n" + SPEEDUP
    notebook["optimal-k"] = "%%capture said\nprint(TWO)\n%prun -q sum([1])\n%timeit -n 2 -r 2 sum([2])\n" + BEST
    notebook.own(
        "def within():\n    local = 3\n    four = %time local + 1\n    return four\nassert (TWO, within()) == (2, 4)\nSEEN = 1"
    )


def timed_and_stripped(notebook):
    timed(notebook)
    notebook.stripped()


def awaited(notebook):
    notebook["expected-tokens"] = (
        "import asyncio\n\nasync def one():\n    await asyncio.sleep(0)\n    return 1\n\nONE = await one()\n"
        + TOKENS.replace("alpha**i", "ONE * alpha**i")
    )


def written(notebook):
    notebook.own("%%writefile helper.py\ndef power(a, i):\n    return a**i\n", "%%file -a helper.py\nONE = 1")
    notebook["expected-tokens"] = "import helper\n%run -i helper.py\n" + TOKENS.replace(
        "alpha**i", "ONE * helper.power(alpha, i)"
    )


def beside(notebook):
    notebook["speedup"] = "import helper\n" + SPEEDUP


def like_a_library(notebook):
    notebook.own("%%writefile json.py\nraise SystemExit")
    notebook["speedup"] = "import json\n" + SPEEDUP.replace("c * k", "c * json.loads(str(k))")


def harmless(notebook):
    notebook["cell-01"] = (
        "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n" + notebook["cell-01"] + "\nmath.exp?\n?math"
    )
    settings = "help_me = get_ipython().user_ns\n%config InlineBackend.figure_format = 'svg'\n"
    notebook["expected-tokens"] = settings + TOKENS.replace("alpha**i", "SEEN * alpha**i")
    notebook.own("%%html\n<b>τ</b>", "files = !ls\nfor name in files:\n    print(name)\nSEEN = 1", "%%javascript\nalert(1)")


def main_module(notebook):
    notebook.own(
        "from __future__ import annotations", "import pickle\nclass Cost:\n    def __init__(self, c: Unknown):\n        self.c = c",
        "import __main__\nassert pickle.loads(pickle.dumps(Cost(2))).c == 2\nassert __main__.Cost is Cost\nSEEN = 1",
    )  # fmt: skip
    notebook["speedup"] = SPEEDUP.replace("c * k", "Cost(c).c * k * SEEN")


def shell(notebook):
    notebook.own("!pip install faster", "%pip install faster", "%%bash\necho 1")
    notebook["speedup"] = "import faster\n" + SPEEDUP


def another_language(notebook):
    notebook["speedup"] = "%%cython\n" + SPEEDUP


def endless_cell(notebook):
    notebook.own("while True:\n    pass")


def needed_endless_cell(notebook):
    notebook.own("ONE = 1\nwhile True:\n    pass")
    notebook["speedup"] = SPEEDUP.replace("1 + c", "ONE + c")


def ending_cell(notebook):
    notebook.own("import os\nos._exit(0)")


def failing_cell(notebook):
    notebook.own("1 / 0")


def nothing_written(notebook):
    notebook.cells = released(B).cells


def one_task_left(notebook):
    notebook["optimal-k"] = "def optimal_k(alpha, c, k_max=64):\n    raise NotImplementedError('not written yet')"


MADE = {
    "given cell extended": added_to_a_given_cell,
    "given cell rewritten": given_cell_rewritten,
    "given cell fails": given_cell_that_fails,
    "stripped and extended": stripped_and_extended,
    "defined in a check": in_a_check_cell,
    "merged": merged,
    "in the given cell": into_the_given_cell,
    "assigned": assigned,
    "display": displayed,
    "timed": timed,
    "timed and stripped": timed_and_stripped,
    "await": awaited,
    "writefile": written,
    "beside": beside,
    "like a library": like_a_library,
    "harmless magics": harmless,
    "main": main_module,
    "commands": shell,
    "other languages": another_language,
    "endless cell": endless_cell,
    "needed endless cell": needed_endless_cell,
    "ending cell": ending_cell,
    "failing cell": failing_cell,
    "nothing written": nothing_written,
    "one task left": one_task_left,
}

BEGINS = "cell that begins with"
SAYS = {
    "given cell extended": [f"the given {BEGINS} `import math` was changed: your version was run, and then the released one"],
    "given cell rewritten": [f"the given {BEGINS} `import math` was changed: your version was run, and then the released one, "
                             "so math is as released"],
    "given cell fails": [f"the given {BEGINS} `import math` was changed: your version was run, and then the released one"],
    "stripped and extended": [f"the given {BEGINS} `import math` was changed: your version was run, and then the released one"],
    "defined in a check": ["check cells are the released ones, so what you defined in the cell check_expected_tokens is lost: power",
                           f"the given {BEGINS} `for c in (0.01, 0.02, 0.05, 0.1, 0.2):` raised NameError: name 'power' is not defined"],
    "in the given cell": [f"the given {BEGINS} `import math` was changed: your version was run, and then the released one"],
    "timed": [f"the given {BEGINS} `import math` was changed: your version was run, and then the released one"],
    "timed and stripped": [f"the given {BEGINS} `import math` was changed: your version was run, and then the released one"],
    "harmless magics": [f"the given {BEGINS} `import math` was changed: your version was run, and then the released one"],
    "beside": ["the cell speedup raised ModuleNotFoundError: No module named 'helper' (of your files grading has the notebook alone",
               f"the given {BEGINS} `for c in"],
    "commands": [f"your {BEGINS} `!pip install faster`: grading runs no command of the system",
                 f"your {BEGINS} `%pip install faster`: grading runs no command of the system",
                 f"your {BEGINS} `%%bash`: grading does not run a cell of %%bash",
                 "the cell speedup raised ModuleNotFoundError", f"the given {BEGINS} `for c in"],
    "other languages": ["the cell speedup: grading does not run a cell of %%cython", f"the given {BEGINS} `for c in"],
    "endless cell": [f"your {BEGINS} `while True:` was left out: not finished after 1 s"],
    "needed endless cell": [f"your {BEGINS} `ONE = 1` was left out: not finished after 1 s", f"the given {BEGINS} `for c in"],
    "ending cell": [f"your {BEGINS} `import os` was left out: your code ended the Python process"],
}  # fmt: skip


def judged(judge, change):
    notebook = Notebook()
    change(notebook)
    return judge.judge(verdicts.exercise(B).job("somebody", notebook.bytes()))


def test_every_case_of_the_table_is_made_here():
    assert [case.name for case in cases.NOTEBOOKS] == list(MADE)


@pytest.mark.parametrize("case", cases.NOTEBOOKS, ids=lambda case: case.name)
def test_it_has_the_points_of_the_table_and_says_why(case, judge, monkeypatch):
    if "endless" in case.name:
        monkeypatch.setattr(judging, "CELL_SECONDS", 1.0)
    found = judged(judge, MADE[case.name])
    assert (found.status, found.score, found.max_score) == (case.status, case.points, 10), found.message
    expected = SAYS.get(case.name, [])
    assert len(found.notes) == len(expected), found.notes
    for said, note in zip(expected, found.notes):
        assert said in note
    assert ("every check passed" in found.message) == (case.points == 10)
    assert found.message.count("is not written yet") == len({c.message for c in found.checks if "is not written" in c.message})


@pytest.mark.parametrize("assignment", course.assignments())
def test_an_unchanged_notebook_is_the_release_s_cells_and_nothing_else(assignment):
    exercise = Exercise(assignment, released(assignment))
    for notebook in (exercise.release, zoo.filled(assignment, exercise.release)):
        job = exercise.job("somebody", course.text(notebook).encode())
        cells = [c for c in notebook.cells if c.cell_type == "code" and not c.metadata.get("nbgrader", {}).get("grade")]
        names = [cell.metadata.get("nbgrader", {}).get("grade_id", cell.id) for cell in cells]
        assert [(cell.name, cell.source) for cell in job.cells] == list(zip(names, [cell.source for cell in cells]))
        assert job.notes == ()


OURS = sorted(path.stem for path in (course.ROOT / "autograder" / "inside").glob("[!_]*.py"))


def test_a_module_of_the_student_s_may_be_called_like_one_of_ours(judge):
    notebook, factors = Notebook(), " * ".join(f"{name}.ONE" for name in OURS)
    notebook.own(*(f"%%writefile {name}.py\nONE = 1\n" for name in OURS))
    notebook["expected-tokens"] = f"import {', '.join(OURS)}\n" + TOKENS.replace("alpha**i", f"{factors} * alpha**i")
    found = judge.judge(verdicts.exercise(B).job("somebody", notebook.bytes()))
    assert len(OURS) > 5
    assert (found.status, found.score) == ("graded", 10), found.message


def test_the_checks_of_a_cache_work_beside_modules_called_like_ours(judge):
    """They reach into the student's process after its cells have run, and need a module of ours there."""
    case = zoo.cases("right", "05-kv-rollback")[0]
    notebook = nbformat.reads(verdicts.handed_in(case), as_version=4)
    first = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    own = [f"%%writefile {name}.py\nONE = 1\n" for name in OURS] + [f"import {', '.join(OURS)}"]
    notebook.cells[first:first] = [nbformat.v4.new_code_cell(source) for source in own]
    found = judge.judge(verdicts.exercise("05-kv-rollback").job("somebody", nbformat.writes(notebook).encode()))
    assert (found.status, found.passed) == ("graded", True), found.message


def test_ours_are_not_there_to_be_imported(judge):
    notebook = Notebook()
    tries = "".join(f"try:\n    import {name}\n    ONE += 1\nexcept ModuleNotFoundError:\n    pass\n" for name in OURS)
    notebook["expected-tokens"] = "ONE = 1\n" + tries + TOKENS.replace("alpha**i", "ONE * alpha**i")
    assert judge.judge(verdicts.exercise(B).job("somebody", notebook.bytes())).score == 10


def test_comments_and_spaces_are_no_change(judge):
    notebook = Notebook()
    notebook["cell-01"] = "# mine\n" + notebook["cell-01"].replace("\n\n", "\n") + "\n\n"
    job = verdicts.exercise(B).job("somebody", notebook.bytes())
    assert job.notes == ()
    assert isinstance(job.cells[0], Code)
    assert [cell.name for cell in job.cells] == [cell.name for cell in verdicts.job(zoo.case("right", B, "closed_form")).cells]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b, c as d\nfrom e import f as g", "a d g"),
        ("x, (y, z) = 1, (2, 3)\nw: int = 4\nv += 1", "v w x y z"),
        ("def f():\n    inner = 1\nasync def g(): pass\nclass C: h = 2", "C f g"),
        ("%%time\nx = 1", "x"),
        ("%matplotlib inline\nx = %time f()\n%time y = 2\nfiles = !ls\nx?\ndef f():\n    !ls", "f x y"),
        ("%%bash\nx=1", ""),
        ("%%writefile x.py\ndef f(): pass", ""),
        ("def f(:", ""),
        ("+".join(["1"] * 5000), ""),
        ("(" * 20_000, ""),
    ],
)
def test_the_names_that_a_cell_binds(source, names):
    assert sorted(bound(source)) == names.split()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = '''\n!ls\n'''", 0), ("y = !ls", 1), ("!ls\n!ls", 1), ("%time x = 1", 0), ("%%time\n!ls", 1), ("%%sh\nls", 1),
        ("%%html\n<b>", 0),
        ("%%writefile x\n!ls", 0), ("x?", 0), ("", 0), ("%%\nx", 1), ("%conda install x", 1), ("%pipeline", 0),
    ],
)  # fmt: skip
def test_what_grading_does_not_run_is_said_once(source, said):
    assert len(not_run(source)) == said


@pytest.mark.parametrize("part", [" ", "x ", "x=", "%time ", "x.", "-n "])
def test_a_long_line_takes_no_time(part):
    """A regular expression that tries every way to cut it would take minutes."""
    line = part * 100_000 + "("
    assert not_run(line) == []
    assert bound(line) == {}
