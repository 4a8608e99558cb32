"""Everything that a grading run leaves behind, from its marks. Only the runner's main process calls this."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from sqlalchemy import URL

from autograder import course, files
from autograder.intake.reading import Refused, Unreadable, read, read_bytes
from autograder.intake.rebuilding import rebuild
from autograder.intake.submission import TIMESTAMP, Submission
from autograder.marks import Mark
from autograder.outputs import gradebook, pages, report, tables
from autograder.outputs.folders import folders, safe

FEW = 8  # pages that are made faster than a second process starts
CONFIG = '''"""nbgrader's settings for this course folder: run `nbgrader` here."""

import os

c = get_config()  # noqa: F821  (nbgrader provides it)

c.CourseDirectory.course_id = "{course}"
if os.environ.get("AUTOGRADER_DB_URL"):  # not written down here: it may hold a password
    c.CourseDirectory.db_url = os.environ["AUTOGRADER_DB_URL"]
'''


@dataclass(frozen=True)
class Job:
    """One submission whose page and notebooks are to be made."""

    mark: Mark
    stamp: str
    notebook: Path | None
    release: NotebookNode | None


def everything(
    marks: Sequence[Mark],
    out: Path,
    released: Mapping[str, NotebookNode],
    submissions: Iterable[Submission] = (),
    *,
    db_url: str = "",
    roster: str = "",
    jobs: int = 1,
) -> None:
    """Writes into `out`: grades.csv, canvas.csv, class.html, class.csv, feedback/student/NN-slug.html, and into the nbgrader course
    in out/course (made by `course.make_course`) its gradebook, submitted/ and autograded/.

    What has not changed since the last time is left alone, and grades.csv comes last: where it stands, everything else does.

    released: {assignment: student notebook}.
    submissions: where the notebooks lie, and what else is known of them; needed for submitted/ and autograded/.
    db_url: the gradebook, if it is not out/course/gradebook.db.
    roster: the text of a Canvas gradebook export, for canvas.csv.
    """
    names = folders(mark.student for mark in marks)
    found = {(s.student, s.assignment): s for s in submissions}
    todo = []
    for mark in marks:
        release, where = released.get(mark.assignment), found.get((mark.student, mark.assignment))
        job = Job(mark, pages.stamp(mark, release), where.path if where else None, release)
        there = release is None or _notebook(out, "autograded", mark, names).exists()
        if not (there and pages.is_fresh(_page(out, mark, names), job.stamp)):
            todo.append(job)
    for job, (page, notebook) in zip(todo, _made(todo, jobs)):
        if notebook is not None:
            _write_notebooks(out, job, notebook, names, found.get((job.mark.student, job.mark.assignment)))
        files.write(_page(out, job.mark, names), page)  # last: it says that the rest is there
    if released:
        times = {key: s.timestamp for key, s in found.items() if s.timestamp}
        gradebook.write(
            marks, db_url or URL.create("sqlite", database=str((out / "course" / "gradebook.db").resolve())), names, times
        )
        files.write(out / "course" / "nbgrader_config.py", CONFIG.format(course=gradebook.COURSE))
    files.write(out / "class.html", report.page(marks))
    files.write(out / "class.csv", report.table(marks))
    files.write(
        out / "canvas.csv", tables.canvas(marks, {s.student: s.canvas_id for s in found.values() if s.canvas_id}, roster)
    )
    files.write(out / "grades.csv", tables.grades(marks))


def _page(out: Path, mark: Mark, names: Mapping[str, str]) -> Path:
    return out / "feedback" / names[mark.student] / f"{safe(mark.assignment) or 'submission'}.html"


def _notebook(out: Path, stage: str, mark: Mark, names: Mapping[str, str]) -> Path:
    return out / "course" / stage / names[mark.student] / mark.assignment / f"{course.NOTEBOOK}.ipynb"


def _write_notebooks(out: Path, job: Job, autograded: str, names: Mapping[str, str], submission: Submission | None) -> None:
    stages: dict[str, str | bytes] = {"autograded": autograded}
    if job.notebook:
        with contextlib.suppress(Refused):
            stages["submitted"] = read_bytes(job.notebook)
    for stage, content in stages.items():
        place = _notebook(out, stage, job.mark, names)
        files.write(place, content)
        if submission and gradebook.moment(submission.timestamp):
            files.write(place.with_name(TIMESTAMP), submission.timestamp + "\n")


def _made(todo: list[Job], jobs: int) -> Iterator[tuple[str, str | None]]:
    """What `make` makes of all jobs, in order. Several processes share the work where there is much: a picture takes a fifth of a
    second."""
    done = 0
    if len(todo) > FEW and jobs > 1:
        try:
            with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
                for made in pool.map(make, todo, chunksize=2):
                    yield made
                    done += 1
        except BrokenProcessPool:  # somebody's picture took all memory: the rest has none
            yield from (make(job, draw=False) for job in todo[done:])
        return
    yield from map(make, todo)


def make(job: Job, draw: bool = True) -> tuple[str, str | None]:
    """One submission's page, and its notebook as nbgrader shows it: None where there is no assignment."""
    drawn = pages.pictures(job.mark) if draw else {}
    page = pages.page(job.mark, drawn, job.release, job.stamp)
    if job.release is None:
        return page, None
    notebook = job.release
    if job.notebook:
        with contextlib.suppress(Unreadable):  # the page and the mark say so; nbgrader gets the pristine notebook
            notebook, _ = rebuild(read(job.notebook), job.release)
    return page, course.text(pages.autograded(job.mark, drawn, notebook))
