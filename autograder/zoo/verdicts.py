"""Whether the judge says of each case of the zoo what must be said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from autograder import course, runner, zoo
from autograder.judging.judge import Exercise, Job, Judge, Settings, released
from autograder.marks import Mark

# Wait for limits of time on purpose, or look at every object of their process.
SLOW = frozenset({"never_stops", "sleeps", "forks", "floods_output", "kills", "step_endless", "floods_disk", "floods_memory", "reads_objects"})
FAST = 3  # wrong ones of each check in the fast part
SHOWN = 5  # of the cases that took longest


@cache
def exercise(assignment: str) -> Exercise:
    return Exercise(assignment, released(assignment), secret="zoo")


def handed_in(case: zoo.Case) -> bytes:
    """The case as a notebook file."""
    return course.text(zoo.filled(case.assignment, exercise(case.assignment).release, case)).encode()


def job(case: zoo.Case) -> Job:
    return exercise(case.assignment).job("zoo", handed_in(case))


def judged(case: zoo.Case, judge: Judge) -> Mark:
    return judge.judge(job(case))


def fault(case: zoo.Case, mark: Mark) -> str:
    """What is wrong with the mark of a case; nothing if it is right."""
    if mark.status == "error":
        return f"the grader failed: {mark.message}"  # a cheat that breaks it has no points either
    points = {check.name: check.points for check in mark.checks}
    if case.kind == "right":
        lost = [f"{check.name}: {check.message}" for check in mark.checks if not check.passed]
        return "; ".join(lost) or ("" if mark.status == "graded" else mark.status)
    if case.kind == "wrong":
        check = next(check for check in mark.checks if check.name == case.check)
        if check.passed:
            return f"{case.check} passes"
        return "" if case.says in check.message else f"{case.check} says {check.message!r}, not {case.says!r}"
    paid = [name for name in case.cheats if points[name] > 0]
    return f"points for {', '.join(paid)}" if paid else ""


def chosen(kinds: Iterable[str], whole: bool) -> Iterator[zoo.Case]:
    """All cases, or the fast part: right ones, cheats that do not wait for a limit, and the first wrong ones of each check."""
    for kind in kinds:
        met: dict[str, int] = {}
        for case in zoo.cases(kind):
            met[case.check] = met.get(case.check, 0) + 1
            if whole or (case.path.stem not in SLOW and (kind != "wrong" or met[case.check] <= FAST)):
                yield case


def judged_at_once(cases: Sequence[zoo.Case], run: runner.Run) -> Iterator[tuple[zoo.Case, Mark]]:
    """Cases with their marks, as they come. Those that wait for a limit go first, so that nothing waits for them at the end."""
    waiting = sorted(cases, key=lambda case: case.path.stem not in SLOW)
    named = {f"{case.kind} {case}": case for case in waiting}
    jobs = [replace(job(case), student=name) for name, case in named.items()]  # the seed is still that of "zoo"
    with contextlib.closing(runner.judged(jobs, run)) as coming:
        for mark in coming:
            yield named[mark.student], mark


def table(cases: Sequence[zoo.Case], title: str, run: runner.Run, console: Console) -> int:
    """Judges them and prints a line for each kind, the cases that took longest, and each that was missed. Returns how many were."""
    faults: dict[str, list[str]] = {case.kind: [] for case in cases}
    seconds: dict[zoo.Case, float] = {}
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), console=console) as bar:
        for case, mark in bar.track(judged_at_once(cases, run), len(cases), description="Judging the zoo"):
            seconds[case] = sum(check.seconds for check in mark.checks)
            found = fault(case, mark)
            if found:
                faults[case.kind].append(f"{case}: {found}")
    shown = Table("kind", "cases", "caught", "missed", title=title)
    for kind, missed in faults.items():
        count = sum(case.kind == kind for case in cases)
        shown.add_row(kind, str(count), str(count - len(missed)), str(len(missed)), style="red" if missed else "green")
    console.print(shown)
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:SHOWN]
    console.print("slowest: " + ", ".join(f"{case} {seconds[case]:.0f} s" for case in slowest), markup=False)
    for line in sum(faults.values(), []):
        console.print(f"missed: {line}", style="red", markup=False)
    return sum(map(len, faults.values()))
