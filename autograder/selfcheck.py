"""`specdec check`: what the checks say of your own notebooks in chapters/, from the shell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autograder import course
from autograder.checks.notebook import VISIBLE
from autograder.intake.submission import Submission
from autograder.judging.judge import Exercise, Job, Judge, Settings, released
from autograder.marks import Mark


def named(chapter: str) -> str:
    """The assignment that is meant by "02", "2" or its whole name.

    Raises:
        ValueError: naming those that there are.
    """
    known = course.assignments()
    found = [name for name in known if chapter in (name, name[:2]) or chapter.zfill(2) == name[:2]]
    if not found:
        raise ValueError(f"no exercise is called {chapter!r}; there are {', '.join(known)}")
    return found[0]


def taken(assignment: str, notebook: Path) -> Job | Mark:
    """Your notebook against the visible fixtures. The checks are the course's own, whatever stands in the notebook's cells."""
    found = Exercise(assignment, released(assignment)).taken(Submission("you", assignment, notebook))
    return replace(found, seed=VISIBLE) if isinstance(found, Job) else found


def marked(assignments: Sequence[str]) -> Iterator[Mark]:
    """The marks, one after the other. torch takes longer to import than most notebooks to check: only for one that speaks of it."""
    notebooks = {name: course.ROOT / "chapters" / name / f"{course.NOTEBOOK}.ipynb" for name in assignments}
    torch = any(b"torch" in path.read_bytes() for path in notebooks.values() if path.is_file())
    with contextlib.closing(Judge(Settings(unsafe=True, torch=torch))) as judge:  # your own code on your own machine
        for name, path in notebooks.items():
            found = taken(name, path)
            yield judge.judge(found) if isinstance(found, Job) else found


def run(chapter: str, console: Console) -> bool:
    """Checks one chapter, or all of them for "", and prints what was found. Returns whether every check passed."""
    chosen = [named(chapter)] if chapter else course.assignments()
    with Progress(console=console, transient=True) as bar:
        marks = list(bar.track(marked(chosen), total=len(chosen), description="Checking"))
    if chapter:
        console.print(_tasks(marks[0]))
        for note in marks[0].notes:
            console.print(note, markup=False)
    else:
        console.print(_course(marks))
    return all(mark.passed for mark in marks)


def _tasks(mark: Mark) -> Table:
    table = Table("", "check", "points", "what it found", title=mark.assignment)
    for check in mark.checks:
        more = [("expected", check.expected), ("got", check.got), ("hint", check.hint)]
        told = [check.message, *(f"{label}: {text}" for label, text in more if text and not check.passed)]
        points = f"{check.points:g} of {check.max_points:g}"
        style = "green" if check.passed else "red"
        table.add_row("✓" if check.passed else "✗", check.name, points, Text("\n".join(told)), style=style)
    return table


def _course(marks: list[Mark]) -> Table:
    table = Table("exercise", "points", "", title="Your course")
    for mark in marks:
        bar = ProgressBar(total=mark.max_score or 1, completed=mark.score, width=30)
        table.add_row(mark.assignment, f"{mark.score:g} of {mark.max_score:g}", bar)
    return table
