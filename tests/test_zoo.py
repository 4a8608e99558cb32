"""The zoo through the judge: its fast part, a table of which `make test` prints. `make zoo` judges the whole."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from autograder import zoo
from autograder.judging import sandbox
from autograder.judging.judge import Judge, Settings
from autograder.runner import Run
from autograder.zoo import verdicts

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
