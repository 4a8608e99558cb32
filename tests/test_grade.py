"""Grading a folder: every submission has its mark, nothing is graded twice, and a run may end at any moment."""

import csv
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from distributed import LocalCluster, Security
from typer.testing import CliRunner

from autograder import cluster, course, keys, marks, runner, zoo
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
    monkeypatch.setattr(cluster, "workers", lambda *_: pytest.fail("a submission was judged twice"))
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


def test_what_nobody_handed_in_has_its_maximum(tmp_path):
    """And its row for Canvas: the only student's folder has no notebook."""
    (tmp_path / "in" / "ada" / B).mkdir(parents=True)
    (mark,) = runner.grade(tmp_path / "in", tmp_path / "out", run())
    assert (mark.score, mark.max_score, mark.status) == (0, 10, "missing")
    rows = list(csv.reader((tmp_path / "out" / "canvas.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row[0].strip(), row[-1]) for row in rows] == [("Student", B), ("Points Possible", "10"), ("ada", "0")]


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
    security = Security.temporary()
    for name, text in [("ca", security.tls_ca_file), ("cert", security.tls_client_cert), ("key", security.tls_client_key)]:
        (tmp_path / name).write_text(text)
    usual = {"n_workers": 1, "threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": "ERROR"}
    with LocalCluster(security=security, **usual) as there:
        remote = cluster.Remote(there.scheduler_address, *(str(tmp_path / name) for name in ("ca", "cert", "key")))
        again = runner.grade(submitted, tmp_path / "out", run(scheduler=remote))
    assert scores(again) == scores(found)


COMMAND = [sys.executable, "-m", "autograder", "grade", *(["--unsafe"] if JUDGE.unsafe else [])]


ENVIRONMENT = os.environ | {keys.VARIABLE: "s"}


def family(process):
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_where_it_was(submitted, graded, tmp_path):
    """SIGKILL three times, each after one more mark; then the same grades.csv as of a run that was left alone."""
    _, whole, _ = graded
    ledger = tmp_path / "marks"
    for expected in (1, 2, 3):
        process = subprocess.Popen([*COMMAND, str(submitted), str(tmp_path)], cwd=course.ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
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
    subprocess.run([*COMMAND, str(submitted), str(tmp_path)], cwd=course.ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
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


# -- the secret --------------------------------------------------------------------------------------------------------


def invoke(*arguments, **environment):
    unsafe = ["--unsafe"] if JUDGE.unsafe else []
    result = CliRunner().invoke(app, ["grade", *map(str, arguments), *unsafe], env={keys.VARIABLE: None} | environment)
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def seeds(tmp_path, monkeypatch):
    """Grades one submission in a folder; gives the seed that its checks got, and what was printed. Nothing is judged."""
    hand_in(tmp_path / "in", "a", solved(B), B)

    monkeypatch.setattr(runner, "write", lambda *_: None)

    def grade(*arguments, **environment):
        got = []
        monkeypatch.setattr(runner, "judged", lambda jobs, run: (job.nothing("error", str(got.append(job.seed))) for job in jobs))
        code, shown = invoke(tmp_path / "in", *arguments, **environment)
        assert code == 0, shown
        return got[0], shown

    return grade


def test_a_run_says_how_many_have_no_mark_since_the_grader_failed(seeds, tmp_path):
    _, told = seeds(tmp_path / "one")
    assert "0 marks:" in told
    assert "1 more without a mark, since the grader itself failed" in told


def test_without_a_secret_a_run_makes_its_own_says_so_once_and_keeps_it(seeds, tmp_path):
    first, told = seeds(tmp_path / "one")
    path = tmp_path / "one" / keys.OWN
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_text().strip()) == 64
    assert "a random secret" in told
    again, told = seeds(tmp_path / "one")
    assert again == first, "a run that goes on must give the same marks"
    assert "random secret" not in told
    assert seeds(tmp_path / "two")[0] != first, "a seed that needs no secret can be computed by anybody"
    path.chmod(0o644)
    assert "chmod 600" in invoke(tmp_path / "in", tmp_path / "one")[1]


def test_a_secret_comes_from_a_file_or_the_environment(seeds, tmp_path):
    file = tmp_path / "file"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    first, told = seeds(tmp_path / "one", "--secret-file", file)
    assert "random secret" not in told
    assert not (tmp_path / "one" / keys.OWN).exists()
    assert seeds(tmp_path / "two", AUTOGRADER_SECRET="s3cret")[0] == first != seeds(tmp_path / "three", AUTOGRADER_SECRET="other")[0]


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    code, told = invoke(tmp_path / "in", tmp_path / "out", "--secret", "s3cret")
    assert (code, "--secret-file" in told, "ps" in told) == (2, True, True)
    file = tmp_path / "file"
    file.write_text("s3cret")
    file.chmod(0o644)
    code, told = invoke(tmp_path / "in", tmp_path / "out", "--secret-file", file)
    assert (code, "chmod 600" in told) == (2, True)
    file.write_text(" \n")
    file.chmod(0o600)
    code, told = invoke(tmp_path / "in", tmp_path / "out", "--secret-file", file)
    assert (code, "no secret in it" in told) == (2, True)
    assert not (tmp_path / "out").exists(), "nothing may be written before it refuses"


def test_every_status_that_a_mark_can_have_is_explained():
    guide = (course.ROOT / "appendices" / "instructor.md").read_text(encoding="utf-8")
    assert [status for status in marks.STATUS if f"`{status}`" not in guide] == []
