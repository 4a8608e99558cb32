"""Grades a folder of submissions. Each runs in a process and a course folder of its own; this process alone writes what stays."""

from __future__ import annotations

import hashlib
import hmac
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
from nbformat import NotebookNode

from autograder import course, report
from autograder.checks.notebook import SEED
from autograder.execution import DEADLINE, KERNEL_DIED
from autograder.report import Row
from autograder.submission import Submission, Unreadable, collect, read, rebuild
from autograder.worker import STUDENT

GRACE = 60.0  # seconds between the notebook's deadline and the end of its process: start, kernel shutdown, feedback


@dataclass(frozen=True)
class Settings:
    """seconds: for one notebook as a whole; cell_seconds: for one cell; secret: what the hidden checks' seeds are made from."""

    jobs: int = 2
    seconds: float = 600.0
    cell_seconds: int = 90
    secret: str = ""


def grade(folder: Path, out: Path, settings: Settings, progress: Callable[[Row, int], None] = lambda row, total: None) -> list[Row]:
    """Grades everything in `folder` into `out`: grades.csv, feedback/, and nbgrader's course with its gradebook in course/.

    progress is called after each row with the row and their number in all. One bad submission never stops the others: whatever
    happens to it becomes its row.
    """
    submissions = collect(folder, course.assignments())
    wanted = sorted({s.assignment for s in submissions if s.path})
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="autograder-") as temporary:
        template = Path(temporary) / "template"
        released = course.make_course(template, wanted) if wanted else {}
        _prepare(out, template, wanted)
        most = report.max_scores(template / "gradebook.db") if wanted else {}

        def one(submission: Submission) -> Row:
            try:
                if submission.path is None:
                    raise _NotGraded(submission.status)
                return _grade_one(submission, released[submission.assignment], template, out, settings)
            except _NotGraded as reason:
                return _zero(submission, reason.status, reason.message, most)
            except Exception as error:  # anything unforeseen is this row's, not the run's
                return _zero(submission, "error", f"{type(error).__name__}: {error}", most)

        with ThreadPoolExecutor(settings.jobs) as pool:
            for finished in as_completed([pool.submit(one, submission) for submission in submissions]):
                row = finished.result()
                rows.append(row)
                if not row.cells:
                    _write_page(out, row)
                progress(row, len(submissions))
    if wanted:
        report.write_gradebook(rows, out / "course" / "gradebook.db")
    report.write_grades(rows, out / "grades.csv")
    return sorted(rows, key=lambda row: (row.student, row.assignment))


class _NotGraded(Exception):
    def __init__(self, status: str, message: str = ""):
        self.status, self.message = status, message


def _zero(submission: Submission, status: str, message: str, most: dict[str, float]) -> Row:
    text = "; ".join([message, *submission.notes] if message else submission.notes)
    return Row(submission.student, submission.assignment, 0.0, most.get(submission.assignment, 0.0), status, text)


def _prepare(out: Path, template: Path, wanted: list[str]) -> None:
    """The course folder in `out`: made from the template, or brought up to date if there is one from an earlier run."""
    (out / "feedback").mkdir(parents=True, exist_ok=True)
    if not wanted:
        return
    if (out / "course" / "gradebook.db").is_file():
        course.make_course(out / "course", wanted)
    else:
        shutil.copytree(template, out / "course", dirs_exist_ok=True)


def _grade_one(submission: Submission, release: NotebookNode, template: Path, out: Path, settings: Settings) -> Row:
    assert submission.path is not None
    try:
        notebook, notes = rebuild(read(submission.path), release)
    except Unreadable as error:
        raise _NotGraded("unreadable", str(error)) from None
    with tempfile.TemporaryDirectory(prefix="submission-") as temporary:
        scratch = Path(temporary) / "course"
        (scratch / "source").mkdir(parents=True)
        shutil.copytree(template / "source" / submission.assignment, scratch / "source" / submission.assignment)
        shutil.copy(template / "gradebook.db", scratch)
        handed_in = scratch / "submitted" / STUDENT / submission.assignment / f"{course.NOTEBOOK}.ipynb"
        handed_in.parent.mkdir(parents=True)
        handed_in.write_text(course.text(notebook), encoding="utf-8")
        _run_worker(scratch, submission, settings)
        return _keep(scratch, submission, notes, out)


def _run_worker(scratch: Path, submission: Submission, settings: Settings) -> None:
    """Runs the worker to its end, or to its time's, and leaves no process of it behind."""
    digest = hmac.new(settings.secret.encode(), f"{submission.student}/{submission.assignment}".encode(), hashlib.sha256)
    environment = {
        **os.environ,
        SEED: str(1 + int.from_bytes(digest.digest()[:4], "big")),
        DEADLINE: str(time.time() + settings.seconds),
        "SPECDEC_CELL_SECONDS": str(settings.cell_seconds),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(course.ROOT), os.environ.get("PYTHONPATH")])),
        "IPYTHONDIR": str(scratch.parent / "ipython"),
        "PYTHONWARNINGS": "ignore",  # of the tools; a student's warnings are shown where they arise
        "OMP_NUM_THREADS": "1",  # workers share the machine
    }
    command = [sys.executable, "-m", "autograder.worker", str(scratch), submission.assignment]
    log = scratch.parent / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=scratch, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = process.wait(settings.seconds + GRACE)
        except subprocess.TimeoutExpired:
            raise _NotGraded("timeout", f"stopped after {settings.seconds + GRACE:.0f} s; nothing could be saved") from None
        finally:
            _end(process)
    if code:
        raise _NotGraded("error", f"nbgrader could not grade it: …{log.read_text(errors='replace')[-500:]}")


def _end(process: subprocess.Popen) -> None:
    """Ends a process and all that it started: its kernel runs in a session of its own."""
    try:
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


def _keep(scratch: Path, submission: Submission, notes: list[str], out: Path) -> Row:
    """Copies what a finished worker made to where it stays, and makes its row."""
    student, assignment = submission.student, submission.assignment
    autograded = scratch / "autograded" / STUDENT / assignment / f"{course.NOTEBOOK}.ipynb"
    for stage, path in (("submitted", submission.path), ("autograded", autograded)):
        place = out / "course" / stage / student / assignment / f"{course.NOTEBOOK}.ipynb"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    page = out / "feedback" / student / f"{assignment}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(scratch / "feedback" / STUDENT / assignment / f"{course.NOTEBOOK}.html", page)

    cells = report.cell_scores(scratch / "gradebook.db", assignment, STUDENT)
    failed = report.failures(nbformat.read(autograded, as_version=4))
    kinds = {kind for kind, _ in failed}
    late = kinds & {"OutOfTime", "CellTimeoutError"} or any("not finished after" in text for _, text in failed)
    status = "crashed" if KERNEL_DIED in kinds else "timeout" if late else "graded"
    message = "; ".join([*(text for _, text in failed), *submission.notes, *notes]) or "every check passed"
    return Row(student, assignment, sum(cells.values()), _worth(scratch, assignment), status, message, cells)


def _worth(scratch: Path, assignment: str) -> float:
    return report.max_scores(scratch / "gradebook.db")[assignment]


def _write_page(out: Path, row: Row) -> None:
    page = out / "feedback" / row.student / f"{row.assignment or 'submission'}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(report.page(row), encoding="utf-8")
