"""Grading a folder: every submission has its mark, nothing is graded twice, and a run may end at any moment."""

import csv
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from distributed import LocalCluster
from typer.testing import CliRunner

from autograder import course, marks, runner, zoo
from autograder.__main__ import app
from autograder.intake.submission import NOTEBOOK
from autograder.judging import sandbox
from autograder.judging.judge import Settings, released

A, B = "02-rejection-rule", "04-speedup"
JUDGE = Settings(unsafe=bool(sandbox.unavailable()))


def hand_in(folder, student, content, assignment):
    path = folder / student / assignment / NOTEBOOK
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def solved(assignment, kind="", name=""):
    case = zoo.case(kind, assignment, name) if name else None
    return course.text(zoo.filled(assignment, released(assignment), case))


def run(**changes):
    return runner.Run(**{"jobs": 2, "secret": "s", "judge": JUDGE} | changes)


@pytest.fixture(scope="module")
def submitted(tmp_path_factory):
    """An instructor's first day."""
    folder = tmp_path_factory.mktemp("submitted")
    hand_in(folder, "right", solved(A), A)
    hand_in(folder, "residual_from_p", solved(A, "wrong", "residual_from_p"), A)
    hand_in(folder, "step_no_bonus", solved(A, "wrong", "step_no_bonus"), A)
    hand_in(folder, "right", solved(B, "right", "numpy_table"), B)
    hand_in(folder, "wrong", solved(B, "wrong", "tokens_power_k"), B)
    hand_in(folder, "not-json", "no notebook at all", A)
    hand_in(folder, "unknown", "{}", "03-acceptance")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(scope="module")
def graded(submitted, tmp_path_factory):
    out, calls = tmp_path_factory.mktemp("graded"), []
    found = runner.grade(submitted, out, run(), lambda mark, total: calls.append((mark.student, total)))
    return found, out, calls


def scores(found):
    return {(mark.student, mark.assignment[:2]): (mark.score, mark.max_score, mark.status) for mark in found}


def test_the_marks_are_right(graded):
    found, _, calls = graded
    assert scores(found) == {
        ("right", "02"): (10, 10, "graded"),
        ("residual_from_p", "02"): (3, 10, "graded"),  # accept_or_reject, and the cases in which chance plays no part
        ("step_no_bonus", "02"): (6, 10, "graded"),  # all but the two checks that look at whole steps
        ("right", "04"): (10, 10, "graded"),
        ("wrong", "04"): (0, 10, "graded"),
        ("not-json", "02"): (0, 10, "unreadable"),
        ("unknown", "03"): (0, 0, "unknown"),
        ("empty", ""): (0, 0, "empty"),
    }
    assert len(calls) == len(found)


def test_the_messages_name_the_mistakes(graded):
    told = {(mark.student, mark.assignment[:2]): mark.message for mark in graded[0]}
    assert "resamples from p" in told["residual_from_p", "02"]
    assert "no bonus token" in told["step_no_bonus", "02"]
    assert "not JSON" in told["not-json", "02"]
    assert told["right", "02"] == "every check passed"


def test_everything_is_there(graded):
    found, out, _ = graded
    table = list(csv.DictReader((out / "grades.csv").read_text(encoding="utf-8").splitlines()))
    assert [(line["student"], line["assignment"]) for line in table] == [(mark.student, mark.assignment) for mark in found]
    assert {path.name for path in out.iterdir()} >= {"grades.csv", "canvas.csv", "class.html", "class.csv", "feedback", "course", "marks"}
    for student in ("right", "residual_from_p", "not-json"):
        assert (out / "feedback" / student / f"{A}.html").is_file()


def test_a_second_run_judges_nothing_and_changes_nothing(graded, submitted, monkeypatch):
    found, out, _ = graded
    before = (out / "grades.csv").read_bytes()
    monkeypatch.setattr(runner, "_client", lambda *_: pytest.fail("a submission was judged twice"))
    assert runner.grade(submitted, out, run()) == found
    assert (out / "grades.csv").read_bytes() == before


def test_a_fixed_check_regrades_its_exercise_alone(graded, submitted, monkeypatch):
    found, out, _ = graded
    version, judged = runner.Exercise._version, []
    monkeypatch.setattr(runner.Exercise, "_version", lambda self: version(self) + ("!" if self.assignment == B else ""))
    judge = runner.judged
    monkeypatch.setattr(runner, "judged", lambda jobs, run: judge(judged.extend(jobs) or jobs, run))
    again = runner.grade(submitted, out, run())
    assert {job.assignment for job in judged} == {B}
    assert scores(again) == scores(found)
    assert {mark.version[-1] for mark in again if mark.assignment == B and mark.checks} == {"!"}


def test_a_resubmission_is_graded_and_nothing_else(submitted, tmp_path, monkeypatch):
    folder, out = tmp_path / "in", tmp_path / "out"
    hand_in(folder, "a", solved(B, "wrong", "tokens_all"), B)
    hand_in(folder, "b", solved(B), B)
    assert [mark.score for mark in runner.grade(folder, out, run())] == [0, 10]
    hand_in(folder, "a", solved(B), B)
    judged = []
    judge = runner.judged
    monkeypatch.setattr(runner, "judged", lambda jobs, run: judge(judged.extend(jobs) or jobs, run))
    assert [mark.score for mark in runner.grade(folder, out, run())] == [10, 10]
    assert [job.student for job in judged] == ["a"]


def test_a_mark_that_was_damaged_is_made_again(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    hand_in(folder, "a", solved(B), B)
    (first,) = runner.grade(folder, out, run())
    (path,) = (out / "marks").glob("*.json")
    path.write_text(path.read_text().replace("10.0", "11.0").replace('"graded"', '"graded "'))
    (second,) = runner.grade(folder, out, run())
    assert second.score == first.score


def test_another_machine_s_workers_give_the_same_marks(graded, submitted, tmp_path):
    found, _, _ = graded
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs="ERROR") as cluster:
        again = runner.grade(submitted, tmp_path, run(scheduler=cluster.scheduler_address))
    assert scores(again) == scores(found)


@pytest.mark.parametrize(("jobs", "submissions", "workers"), [(1, 9, 1), (3, 9, 3), (3, 1, 1)])
def test_there_are_as_many_workers_as_jobs_and_no_more_than_submissions(jobs, submissions, workers):
    with runner._client(run(jobs=jobs), submissions) as client:
        assert len(client.nthreads()) == workers


COMMAND = [sys.executable, "-m", "autograder", "grade", "--secret", "s", *(["--unsafe"] if JUDGE.unsafe else [])]


def family(process):
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_where_it_was(submitted, graded, tmp_path):
    """SIGKILL three times, each after one more mark; then the same grades.csv as of a run that was left alone."""
    _, whole, _ = graded
    ledger = tmp_path / "marks"
    for expected in (1, 2, 3):
        process = subprocess.Popen([*COMMAND, str(submitted), str(tmp_path)], cwd=course.ROOT, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 300
        while len(list(ledger.glob("[!.]*.json"))) < expected:
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        workers = family(process)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(workers, timeout=30)
        assert not alive, f"left running: {alive}"
    kept = {path: path.stat().st_mtime_ns for path in ledger.glob("[!.]*.json")}
    subprocess.run([*COMMAND, str(submitted), str(tmp_path)], cwd=course.ROOT, stdout=subprocess.DEVNULL, check=True)
    assert (tmp_path / "grades.csv").read_bytes() == (whole / "grades.csv").read_bytes()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "a finished mark was made again"


@pytest.mark.slow
def test_a_worker_that_dies_costs_nobody_a_mark(submitted, graded, tmp_path):
    found, _, _ = graded
    killed = []

    def kill_one(mark, total):
        workers = [p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())]
        if mark.status == "graded" and not killed and workers:
            killed.append(workers[0])
            workers[0].kill()

    again = runner.grade(submitted, tmp_path, run(), kill_one)
    assert killed
    assert scores(again) == scores(found)


# -- the command -------------------------------------------------------------------------------------------------------


def test_without_a_sandbox_it_refuses_and_says_what_unsafe_means(submitted, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "unavailable", lambda: "bubblewrap is not installed")
    result = CliRunner().invoke(app, ["grade", str(submitted), str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "bubblewrap is not installed" in result.output
    assert "--unsafe" in result.output
    assert not (tmp_path / "out").exists(), "nothing may be written before it refuses"


def test_a_zip_without_its_assignment_is_a_clear_error(tmp_path):
    (tmp_path / "submissions.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    unsafe = ["--unsafe"] if JUDGE.unsafe else []
    result = CliRunner().invoke(app, ["grade", str(tmp_path / "submissions.zip"), str(tmp_path / "out"), *unsafe])
    assert result.exit_code == 2
    assert "assignment" in result.output


def test_every_status_that_a_mark_can_have_is_explained():
    guide = (course.ROOT / "appendices" / "instructor.md").read_text(encoding="utf-8")
    assert [status for status in marks.STATUS if f"`{status}`" not in guide] == []
