"""A class of invented students whose marks are known: submissions of chapter 02, drawn from the zoo."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from autograder import files, zoo
from autograder.intake.submission import NOTEBOOK
from autograder.marks import Mark
from autograder.zoo import verdicts

ASSIGNMENT = "02-rejection-rule"
SHARES = {"wrong": 0.25, "cheat": 0.05}  # of the class; the others are right
ROOM = 8  # a kind may take an eighth of the class, whatever its share, if then each of its cases comes up


@dataclass(frozen=True)
class Student:
    name: str
    case: zoo.Case


def numbers(count: int) -> dict[str, int]:
    """How many submissions of each kind a class of `count` hands in."""
    found = {}
    for kind, share in SHARES.items():
        cases = len(zoo.cases(kind, ASSIGNMENT))
        found[kind] = max(round(share * count), cases if ROOM * cases <= count else 0)
    return {"right": count - sum(found.values()), **found}


def students(count: int, seed: int) -> list[Student]:
    """The class, its cases mixed: each case of a kind comes up as often as any other, or once less."""
    draw, drawn = random.Random(f"class {seed}"), []
    for kind, number in numbers(count).items():
        cases = zoo.cases(kind, ASSIGNMENT)
        drawn += islice(cycle(draw.sample(cases, len(cases))), number)
    draw.shuffle(drawn)
    return [Student(f"student-{number:04d}", case) for number, case in enumerate(drawn, start=1)]


def honest(members: Iterable[Student]) -> list[Student]:
    """Those that a grader without a sandbox can be given."""
    return [student for student in members if student.case.kind != "cheat"]


def hand_in(members: Sequence[Student], folder: Path) -> Path:
    """Writes folder/submitted, and folder/expected.json with the verdict that each must get. Returns the former."""
    shutil.rmtree(folder, ignore_errors=True)  # another class may have been there
    notebooks = {case: verdicts.handed_in(case) for case in {student.case for student in members}}
    for student in members:
        files.write(folder / "submitted" / student.name / ASSIGNMENT / NOTEBOOK, notebooks[student.case])
    files.write(folder / "expected.json", json.dumps({student.name: expected(student.case) for student in members}, indent=1) + "\n")
    return folder / "submitted"


def expected(case: zoo.Case) -> dict:
    """In words of JSON what `verdicts.fault` looks for."""
    told = {
        "right": {"passed": "every check"},
        "wrong": {"failed": case.check, "says": case.says},
        "cheat": {"no points": list(case.cheats)},
    }
    return {"kind": case.kind, "case": case.path.stem, **told[case.kind]}


def faults(members: Iterable[Student], marks: Iterable[Mark]) -> dict[str, str]:
    """{student: what is wrong with the mark}, for all whose mark is not what it must be."""
    known = {mark.student: mark for mark in marks}
    found = {}
    for student in members:
        mark = known.get(student.name)
        fault = "no mark" if mark is None else verdicts.fault(student.case, mark)
        if fault:
            found[student.name] = f"{student.case.kind} {student.case}: {fault}"
    return found


def judged(members: Sequence[Student], wrong: dict[str, str]) -> list[dict]:
    """A row for each kind: how many were handed in, and how many judged as they must be."""
    rows = []
    for kind in ("right", *SHARES):
        own = [student for student in members if student.case.kind == kind]
        right = sum(student.name not in wrong for student in own)
        rows.append({"kind": kind, "submissions": len(own), "cases": len({s.case for s in own}), "judged right": right})
    return rows
