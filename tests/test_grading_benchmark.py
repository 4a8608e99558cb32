"""The benchmark of the grader: the class it invents, what it takes for a failure, and all of it once, small."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from autograder import zoo
from autograder.judging import sandbox
from autograder.marks import CheckMark, Mark
from benchmarks import grading, grading_class, grading_parts, grading_report, grading_runs
from benchmarks.grading_class import ASSIGNMENT, SHARES, Student


def test_the_class_is_drawn_by_its_seed_alone():
    assert grading_class.students(40, seed=1) == grading_class.students(40, seed=1)
    assert grading_class.students(40, seed=1) != grading_class.students(40, seed=2)
    assert len({student.name for student in grading_class.students(40, seed=1)}) == 40


@pytest.mark.parametrize("count", [20, 100, 300, 1000])
def test_the_class_is_mixed_as_stated(count):
    met = Counter(student.case.kind for student in grading_class.students(count, seed=0))
    assert met.total() == count
    assert met["right"] > count / 2
    assert met["wrong"] == round(SHARES["wrong"] * count)
    assert round(SHARES["cheat"] * count) <= met["cheat"] <= count / grading_class.ROOM


def test_in_a_class_of_300_every_case_of_the_chapter_comes_up():
    met = {student.case for student in grading_class.students(300, seed=0)}
    assert met == {case for kind in ("right", "wrong", "cheat") for case in zoo.cases(kind, ASSIGNMENT)}


def test_the_expected_verdicts_lie_beside_the_submissions(tmp_path):
    cases = zoo.case("right", ASSIGNMENT, "loops"), zoo.case("wrong", ASSIGNMENT, "step_no_bonus"), zoo.case("cheat", ASSIGNMENT, "sleeps")
    members = [Student(f"s{number}", case) for number, case in enumerate(cases)]
    submitted = grading_class.hand_in(members, tmp_path)
    assert sorted(path.name for path in submitted.iterdir()) == ["s0", "s1", "s2"]
    assert json.loads((tmp_path / "expected.json").read_text()) == {
        "s0": {"kind": "right", "case": "loops", "passed": "every check"},
        "s1": {"kind": "wrong", "case": "step_no_bonus", "failed": cases[1].check, "says": cases[1].says},
        "s2": {"kind": "cheat", "case": "sleeps", "no points": ["02.residual_dist"]},
    }


def test_a_wrong_mark_and_a_missing_one_are_seen():
    right, cheat = zoo.case("right", ASSIGNMENT, "loops"), zoo.case("cheat", ASSIGNMENT, "sleeps")
    members = [Student("a", right), Student("b", cheat), Student("c", right)]
    paid = CheckMark("02.residual_dist", "check_residual_dist", 2.0, 2.0, "")
    marks = [Mark(name, ASSIGNMENT, "graded", (paid,)) for name in "ab"]
    faults = grading_class.faults(members, marks)
    assert faults == {"b": "cheat 02-sleeps: points for 02.residual_dist", "c": "right 02-loops: no mark"}
    rows = {row["kind"]: row for row in grading_class.judged(members, faults)}
    assert (rows["right"]["submissions"], rows["right"]["judged right"]) == (2, 1)
    assert (rows["cheat"]["submissions"], rows["cheat"]["judged right"]) == (1, 0)


def test_the_lives_of_killed_runs_add_up_to_moments_of_the_whole():
    lives = grading_runs.moments_of_death(3, 100.0, seed=4)
    assert lives == grading_runs.moments_of_death(3, 100.0, seed=4) != grading_runs.moments_of_death(3, 100.0, seed=5)
    assert min(lives) > 0
    assert sum(lives) < 100


def test_a_part_counts_under_its_own_conditions_alone(tmp_path):
    path = tmp_path / "part.json"
    assert grading_parts.load(path, {"seed": 1}) is None
    grading_parts.store(path, {"seed": 1}, {"seconds": 2.0})
    assert grading_parts.load(path, {"seed": 1}) == {"seconds": 2.0}
    assert grading_parts.load(path, {"seed": 2}) is None


RUN = {"workers": 2, "seconds": 60.0, "moments": [10.0, 20.0, 30.0, 40.0], "peaks": [600 * 2**20, 500 * 2**20]}
KILLED = {
    "equal": True,
    "runs": [{"killed": True, "seconds": 9.0, "found": 0, "left": 1, "graded twice": [], "outlived": []}],
}
RESULTS = {
    "about": {"count": 4, "seed": 0, "quick": True, "machine": "a machine", "cores": 2, "versions": {"Python": "3"}},
    "verdicts": [{"kind": "right", "submissions": 4, "cases": 4, "judged right": 4}],
    "faults": {}, "class": RUN, "killed": KILLED, "samples": [],
    "stock": {**RUN, "moments": [20.0, 40.0, 60.0, 80.0], "workers": 1, "peaks": []},
}  # fmt: skip


def test_the_report_says_what_was_measured():
    page = grading_report.markdown(RESULTS)
    assert "| ours, the class | 2 | 4 | 40 | 60 | 6.0 | 2.0× | 600 |" in page
    assert "| 2 | 20 | 10.00 |" in page
    assert "equal byte for byte" in page
    assert grading_report.failures(RESULTS) == []
    assert grading_report.figure(RESULTS).axes[0].get_xlabel() == "minutes"


@pytest.mark.parametrize(("change", "failure"), [
    ({"equal": False}, "grades.csv of the killed run differs"),
    ({"runs": [KILLED["runs"][0] | {"graded twice": ["a.json"]}]}, "made a finished mark again: a.json"),
    ({"runs": [KILLED["runs"][0] | {"outlived": ["a process"]}]}, "outlived by a process"),
])  # fmt: skip
def test_a_killed_run_that_went_wrong_is_a_failure(change, failure):
    (told,) = grading_report.failures(RESULTS | {"killed": KILLED | change})
    assert failure in told


@pytest.mark.slow
@pytest.mark.skipif(bool(sandbox.unavailable()), reason="students' code runs in a sandbox only")
def test_all_of_it_once(tmp_path, monkeypatch):
    """Three submissions, one of them a mistake that is expected to be another, and one kill."""
    names = ("recursion", "loops")
    members = [Student(name, zoo.case("right", ASSIGNMENT, name)) for name in names]
    members.append(Student("no_bonus", replace(zoo.case("wrong", ASSIGNMENT, "step_no_bonus"), says="something else")))
    monkeypatch.setattr(grading_class, "students", lambda count, seed: members)
    arguments = ["--quick", "--count", "3", "--kill", "1", "--sample", "0", "--stock", "0", "--out", str(tmp_path)]
    app = typer.Typer()
    app.command()(grading.main)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1, result.output
    results = json.loads((tmp_path / "grading_quick.json").read_text())
    assert [row["judged right"] for row in results["verdicts"]] == [2, 0, 0]
    assert "not 'something else'" in results["faults"]["no_bonus"]
    assert len(results["class"]["moments"]) == 3
    assert max(results["class"]["peaks"]) > 2**27
    assert results["killed"]["equal"]
    assert [run["graded twice"] + run["outlived"] for run in results["killed"]["runs"]] == [[], []]
    assert results["killed"]["runs"][-1]["left"] == 3
    assert {path.name for path in tmp_path.iterdir()} == {"grading_quick.json", "grading_quick.md", "grading_quick.png"}
