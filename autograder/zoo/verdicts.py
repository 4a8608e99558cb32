"""Whether the judge says of each case of the zoo what must be said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from rich.console import Console
from rich.progress import track
from rich.table import Table

from autograder import course, zoo
from autograder.judge import Exercise, Judge, Settings, released
from autograder.marks import Mark
from autograder.sandbox import unavailable

# Wait for limits of time on purpose, and so for a minute.
SLOW = frozenset({"never_stops", "sleeps", "forks", "floods_output", "kills", "step_endless", "floods_disk", "floods_memory"})
FAST = 3  # wrong ones of each check in the fast part


@cache
def exercise(assignment: str) -> Exercise:
    return Exercise(assignment, released(assignment), secret="zoo")


def handed_in(case: zoo.Case) -> bytes:
    """The case as a notebook file."""
    return course.text(zoo.filled(case.assignment, exercise(case.assignment).release, case)).encode()


def judged(case: zoo.Case, judge: Judge, student: str = "zoo") -> Mark:
    return judge.judge(exercise(case.assignment).job(student, handed_in(case)))


def fault(case: zoo.Case, mark: Mark) -> str:
    """What is wrong with the mark of a case; nothing if it is right."""
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


def table(kinds: list[str], whole: bool, unsafe: bool, console: Console) -> int:
    """Judges them and prints a line for each kind, and each case that was missed. Returns how many were."""
    why = "" if unsafe else unavailable()
    if why:
        console.print(f"Skipped: {why}", style="yellow", markup=False)
        return 0
    cases = list(chosen([kind for kind in kinds if not (unsafe and kind == "cheat")], whole))
    faults: dict[str, list[str]] = {kind: [] for kind in kinds}
    judge = Judge(Settings(unsafe))
    try:
        for case in track(cases, "Judging the zoo", console=console):
            found = fault(case, judged(case, judge))
            if found:
                faults[case.kind].append(f"{case}: {found}")
    finally:
        judge.close()
    shown = Table("kind", "cases", "caught", "missed", title="The zoo" if whole else "The zoo, its fast part")
    for kind, missed in faults.items():
        count = sum(case.kind == kind for case in cases)
        shown.add_row(kind, str(count), str(count - len(missed)), str(len(missed)), style="red" if missed else "green")
    console.print(shown)
    for line in sum(faults.values(), []):
        console.print(f"missed: {line}", style="red", markup=False)
    return sum(map(len, faults.values()))
