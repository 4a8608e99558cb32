"""Grades many submissions side by side, on this machine or several. This process alone writes what stays.

Workers are `dask.distributed`'s: each has a judge with a warm sandbox, gets jobs as plain data and gives marks back. Every mark is in
the ledger before the next is looked at; a run that was killed goes on with what the ledger lacks, and so does one after a change of
the checks, for the exercises that it touches.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from distributed import as_completed
from nbformat import NotebookNode

from autograder import cluster, course, keys
from autograder.intake import folders
from autograder.intake.submission import Submission
from autograder.judging import sandbox
from autograder.judging.judge import Exercise, Job, Judge, Settings, released
from autograder.marks import Ledger, Mark


@dataclass(frozen=True)
class Run:
    """How to grade. secret: what seeds are made from, without one the folder's own; scheduler: whose workers grade in place of `jobs`
    here; db_url: a gradebook other than course/gradebook.db; assignment, roster: see `folders.collect`, `writing.everything`."""

    jobs: int = 2
    scheduler: cluster.Remote | None = None
    secret: str = ""
    db_url: str = ""
    assignment: str = ""
    roster: str = ""
    judge: Settings = field(default_factory=Settings)


class NoSandbox(RuntimeError):
    """There can be no sandbox here, and nobody has said that it may be done without."""


def grade(source: Path, out: Path, run: Run = Run(), progress: Callable[[Mark, int], None] = lambda mark, total: None) -> list[Mark]:
    """Grades everything in `source` (`folders.collect`) into `out`: the ledger in marks/, then all of `writing.everything`.

    progress is called for each submission with its mark and their number in all, at once for those that the ledger has.

    Raises:
        NoSandbox: before anything is done.
        ValueError: if `source` cannot be read as submissions, or the scheduler is not to be talked to.
    """
    if run.scheduler:
        run.scheduler.security()
    elif not run.judge.unsafe and sandbox.unavailable():
        raise NoSandbox(sandbox.unavailable())
    with tempfile.TemporaryDirectory(prefix="unpacked-") as unpacked:
        known = course.assignments()
        found = folders.collect(source, known, run.assignment, Path(unpacked))
        wanted = sorted({s.assignment for s in found}.intersection(known))  # those that nobody handed in have their maximum, too
        secret = run.secret or keys.own(out)
        exercises = {name: Exercise(name, released(name), secret) for name in wanted}
        ledger, marks, todo = Ledger(out / "marks"), [], []
        for one in found:
            exercise = exercises.get(one.assignment)
            taken = exercise.taken(one) if exercise else Mark(one.student, one.assignment, one.status, (), one.notes)
            mark = _known(taken, ledger) if isinstance(taken, Job) else taken
            if mark is not None:
                marks.append(mark)
                progress(mark, len(found))
            else:
                todo.append(taken)
        with contextlib.closing(judged(todo, run)) as coming:
            for mark in coming:
                if mark.status != "error":  # tried again the next time
                    ledger.store(mark)
                marks.append(mark)
                progress(mark, len(found))
        marks.sort(key=lambda mark: (mark.student, mark.assignment))
        write(marks, out, {name: exercise.release for name, exercise in exercises.items()}, found, run)
    return marks


def _known(job: Job, ledger: Ledger) -> Mark | None:
    """The mark that an earlier run gave to the same submission, if it came with the same remarks."""
    mark = ledger.find(job.student, job.assignment, job.submission, job.version)
    return mark if mark is not None and mark.notes[: len(job.notes)] == job.notes else None


def judged(jobs: Sequence[Job], run: Run) -> Iterator[Mark]:
    """The marks of all jobs, as they come. Whatever becomes of a worker, each job has one."""
    if not jobs:
        return
    with cluster.elsewhere(run.scheduler) if run.scheduler else cluster.workers(min(run.jobs, len(jobs))) as client:
        futures = {client.submit(_judge, job, run.judge, pure=False, retries=1): job for job in jobs}
        for future in as_completed(futures):
            job = futures.pop(future)
            error = future.exception()
            yield future.result() if error is None else job.nothing("error", f"{type(error).__name__}: {error}"[:500])
            future.release()


_judges: dict[Settings, Judge] = {}  # a worker's own


def _judge(job: Job, settings: Settings) -> Mark:
    """In a worker. A sandbox that broke is made anew."""
    for last in (False, True):
        try:
            if settings not in _judges:
                _judges[settings] = Judge(settings)
            return _judges[settings].judge(job)
        except (sandbox.SandboxError, OSError):
            broken = _judges.pop(settings, None)
            if broken is not None:
                broken.close()
            if last:
                raise
    raise AssertionError("not reached")


def write(marks: list[Mark], out: Path, release: dict[str, NotebookNode], found: list[Submission], run: Run) -> None:
    """All outputs; the nbgrader course and its gradebook are made where they are missing."""
    from autograder.outputs import writing  # brings nbgrader, which takes seconds to import: with the marks there

    missing = [name for name in release if not (out / "course" / "release" / name).is_dir()]
    if missing:
        course.make_course(out / "course", missing)
    writing.everything(marks, out, release, found, db_url=run.db_url, roster=run.roster, jobs=run.jobs)
