"""`specdec check`: what the checks say of your own notebooks in chapters/, from the shell."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autograder import course
from autograder.checks.notebook import VISIBLE
from autograder.intake.submission import Submission
from autograder.judging.judge import Exercise, Judge, Settings, released
from autograder.marks import Mark

YOURS = Settings(unsafe=True)  # your own code on your own machine


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


def mark(assignment: str, judge: Judge) -> Mark:
    """Your notebook against the visible fixtures. The checks are the course's own, whatever stands in the notebook's cells."""
    path = course.ROOT / "chapters" / assignment / f"{course.NOTEBOOK}.ipynb"
    taken = Exercise(assignment, released(assignment)).taken(Submission("you", assignment, path))
    return taken if isinstance(taken, Mark) else judge.judge(replace(taken, seed=VISIBLE))


def run(chapter: str, console: Console) -> bool:
    """Checks one chapter, or all of them for "", and prints what was found. Returns whether every check passed."""
    chosen = [named(chapter)] if chapter else course.assignments()
    marks = []
    judge = Judge(YOURS)
    try:
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task("Checking", total=len(chosen))
            for assignment in chosen:
                bar.update(task, description=f"Checking {assignment}")
                marks.append(mark(assignment, judge))
                bar.advance(task)
    finally:
        judge.close()
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
