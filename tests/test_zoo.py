"""The zoo through the judge: its fast part, a table of which `make test` prints. `make zoo` judges the whole."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from autograder import zoo
from autograder.judging import sandbox
from autograder.judging.judge import Judge, Settings
from autograder.runner import Run
from autograder.zoo import matrix, verdicts

KINDS = ("right", "wrong", "cheat")


@pytest.fixture(scope="module")
def judge():
    """Without bubblewrap right and wrong ones are judged all the same."""
    judge = Judge(Settings(unsafe=bool(sandbox.unavailable())))
    yield judge
    judge.close()


@pytest.mark.parametrize("case", list(verdicts.chosen(KINDS, whole=False)), ids=lambda case: f"{case.kind}-{case}")
def test_the_judge_says_what_must_be_said(case, judge, record_property):
    if case.kind == "cheat" and sandbox.unavailable():
        pytest.skip(f"a cheat is judged in a sandbox only: {sandbox.unavailable()}")
    record_property("zoo", case.kind)
    fault = verdicts.fault(case, verdicts.judged(case, judge))
    assert not fault, f"{case.path}: {fault}"


def test_a_wrong_verdict_would_be_seen(judge):
    """The control: the right solution, taken for a wrong one and for a cheat."""
    right = zoo.case("right", "04-speedup", "closed_form")
    mark = verdicts.judged(right, judge)
    assert not verdicts.fault(right, mark)
    wrong = zoo.case("wrong", "04-speedup", "tokens_all")
    assert "passes" in verdicts.fault(wrong, mark)
    assert "points for 04.expected_tokens" in verdicts.fault(zoo.case("cheat", "04-speedup", "network"), mark)
    assert verdicts.fault(right, verdicts.judged(wrong, judge))


def test_several_judges_at_once_give_the_same_table():
    right, wrong = zoo.case("right", "04-speedup", "closed_form"), zoo.case("wrong", "04-speedup", "tokens_all")
    console = Console(file=io.StringIO(), width=100)
    run = Run(2, judge=Settings(unsafe=bool(sandbox.unavailable())))
    missed = verdicts.table([right, wrong, replace(wrong, kind="right")], "A small zoo", run, console)
    shown = console.file.getvalue()
    assert missed == 1
    assert "missed: 04-tokens_all: 04.expected_tokens: always K + 1 tokens" in shown
    assert [line.split("│")[1:5] for line in shown.splitlines() if line.startswith("│")] == [
        [" right ", " 2     ", " 1      ", " 1      "],
        [" wrong ", " 1     ", " 1      ", " 0      "],
    ]


def test_a_cheat_that_breaks_the_grader_is_missed():
    cheat = zoo.case("cheat", "04-speedup", "network")
    assert "the grader failed" in verdicts.fault(cheat, verdicts.job(cheat).nothing("error", "KilledWorker"))


# -- the matrices: a dozen of their cells; `make zoo` judges all -------------------------------------------------------


def cells(of, count=12):
    """Evenly spread over the wrong cells of a matrix, so that mistakes and styles change from one to the next."""
    wrong = [cell for cell in of.cells() if cell[0] and cell[0].check != "02.equivalence"]  # thousands of steps in each of those
    return [(of, *wrong[i * len(wrong) // count]) for i in range(count)]


@pytest.mark.parametrize(("of", "mistake", "style"), [cell for each in matrix.matrices() for cell in cells(each)],
                         ids=lambda part: getattr(part, "name", getattr(part, "assignment", part)))  # fmt: skip
def test_a_mistake_loses_its_marks_in_every_style(of, mistake, style):
    sign, fault = matrix.verdict(of, mistake, style)
    assert sign in (matrix.NAMED, matrix.CAUGHT)
    assert not fault


def test_a_cell_that_passes_or_has_another_name_is_seen():
    """The control: the right parts, taken for a mistake, and a mistake that is asked for another name; a right style that is wrong."""
    small = matrix.matrix("02")
    harmless = matrix.Mistake("nothing", "02.accept_or_reject", "nothing", {})
    misnamed = matrix.Mistake("q/p", "02.accept_or_reject", "p/q instead", {"accept": lambda p, q, u: u * p < q})
    wrong = {"loops": lambda **parts: small.styles["loops"](**{**misnamed.parts, **parts})}
    assert matrix.verdict(small, harmless, "loops")[0] == matrix.MISSED
    assert matrix.verdict(small, misnamed, "loops")[0] == matrix.CAUGHT
    console = Console(file=io.StringIO(), width=100)
    assert matrix.table(matrix.Matrix(small.assignment, wrong, (harmless, misnamed)), console) == 3
    shown = console.file.getvalue()
    assert "wrong: the right solution, loops: q/p instead of p/q" in shown
    assert "wrong: q/p, loops: 02.accept_or_reject says 'q/p instead of p/q', not 'p/q instead'" in shown
