"""`specdec check`: one's own notebook, from the shell."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from autograder import course, selfcheck, zoo
from autograder.judging.judge import released
from specdec.cli import app

B = "04-speedup"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A course folder of one's own; returns a way to write the notebook of chapter 04."""
    monkeypatch.setattr(selfcheck.course, "ROOT", tmp_path)
    monkeypatch.setattr(selfcheck.course, "assignments", lambda: [B])
    path = tmp_path / "chapters" / B / "exercise.ipynb"
    path.parent.mkdir(parents=True)
    return lambda text: path.write_text(text, encoding="utf-8")


def check(*arguments):
    result = CliRunner().invoke(app, ["check", *arguments])
    return result.exit_code, " ".join(result.output.split())


def test_a_solved_notebook_passes(mine):
    mine(course.text(zoo.filled(B, released(B))))
    code, shown = check("04")
    assert code == 0, shown
    assert shown.count("✓") == 3
    code, shown = check()
    assert code == 0
    assert "10 of 10" in shown


def test_a_mistake_is_named(mine):
    mine(course.text(zoo.filled(B, released(B), zoo.case("wrong", B, "tokens_power_k"))))
    code, shown = check("4")
    assert code == 1
    assert "α^K instead of α^(K+1)" in shown
    assert "expected:" in shown


def test_a_check_that_was_edited_out_still_counts(mine):
    notebook = released(B)
    notebook.cells = [cell for cell in notebook.cells if "check(" not in cell.source]
    mine(course.text(notebook))
    code, shown = check(B)
    assert code == 1
    assert shown.count("not written yet") >= 3


def test_what_is_no_exercise_is_named(mine):
    code, shown = check("09")
    assert code == 2
    assert "no exercise is called '09'" in shown
    assert B in shown


def test_no_notebook_is_said(mine):
    code, shown = check("04")
    assert code == 1
    assert "cannot be opened" in shown


# -- what it need not import -------------------------------------------------------------------------------------------

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))  # importing one of them is an error
from specdec.cli import app
app(["check", sys.argv[1]])
"""
HEAVY = ("torch", "numpy", "scipy", "matplotlib", "nbgrader", "jupytext", "distributed")


@pytest.mark.parametrize(("chapter", "code"), [("99", 2), ("02", 1), (B[:2], 1)])
def test_nothing_that_takes_seconds_to_import_is_needed_to_say_that_there_is_nothing(chapter, code):
    """Neither for a chapter that there is not, nor for this project's own notebook, in which nothing is written."""
    told = subprocess.run([sys.executable, "-c", WITHOUT, chapter, *HEAVY], cwd=course.ROOT, capture_output=True, text=True)
    assert told.returncode == code, told.stderr
    assert f"there are {course.assignments()[0]}" in told.stderr if code == 2 else told.stdout.count("not written yet") >= 3


@pytest.mark.parametrize("first", ["", "import torch"])
def test_a_sandbox_begins_with_torch_if_the_notebook_speaks_of_it(mine, first, monkeypatch):
    started, judge = [], selfcheck.Judge
    monkeypatch.setattr(selfcheck, "Judge", lambda settings: started.append(settings.torch) or judge(settings))
    notebook = zoo.filled(B, released(B))
    solution = next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution"))
    solution.source = f"{first}\n{solution.source}"
    mine(course.text(notebook))
    code, shown = check("04")
    assert code == 0, shown
    assert started == [bool(first)]


def test_what_stands_in_chapters_makes_no_difference_to_the_checks(mine):
    """In a copy without sources, too, as students have it."""
    notebook = released(B)
    for cell in notebook.cells:
        cell.source = cell.source.replace("check(", "print(")
    mine(course.text(notebook))
    code, shown = check(B)
    assert code == 1
    assert shown.count("not written yet") >= 3
