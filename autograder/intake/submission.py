"""One submission: a notebook to grade, or why there is none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from autograder.intake.reading import Refused, file_kind, read_bytes

NOTEBOOK = "exercise.ipynb"
TIMESTAMP = "timestamp.txt"  # nbgrader's, beside the notebook


@dataclass(frozen=True)
class Submission:
    """One notebook to grade; or, where `status` is set, why there is none. `notes` are remarks for the mark's message.

    timestamp: when it was handed in, in the words of the source, or "".
    canvas_id: the student's number in Canvas, or "".
    """

    student: str
    assignment: str
    path: Path | None = None
    status: str = ""
    notes: tuple[str, ...] = ()
    timestamp: str = ""
    canvas_id: str = ""


def entries(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; not what is hidden, nor what operating systems leave there."""
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "__"))]


def in_folder(student: str, assignment: str, folder: Path) -> Submission:
    """The notebook that counts in an assignment's folder: exercise.ipynb, or its last resubmission exercise-N.ipynb, or the only one."""
    notebooks = [path for path in entries(folder) if path.suffix == ".ipynb"]
    attempts = sorted((path for path in notebooks if attempt(path.name) is not None), key=lambda path: attempt(path.name))
    if not attempts and len(notebooks) != 1:
        what = "there is no notebook" if not notebooks else f"none of {len(notebooks)} notebooks is called {NOTEBOOK}"
        return Submission(student, assignment, None, "missing", (what,))
    chosen = (attempts or notebooks)[-1]
    notes = [] if chosen.name == NOTEBOOK else [f"{chosen.name} was graded as {NOTEBOOK}"]
    notes += [f"the earlier {path.name} was not graded" for path in attempts[:-1]]
    notes += [f"{path.name} was not looked at" for path in notebooks if path not in attempts and path != chosen]
    if kind := file_kind(chosen):
        return Submission(student, assignment, None, "refused", (f"{chosen.name} is {kind}, not a file", *notes))
    return Submission(student, assignment, chosen, notes=tuple(notes), timestamp=_timestamp(folder))


def attempt(name: str) -> int | None:
    """Which attempt a file name says it is: 0 for exercise.ipynb, N for exercise-N.ipynb as Canvas names resubmissions."""
    match = re.fullmatch(r"exercise(?:-(\d{1,6}))?\.ipynb", name)
    return int(match[1] or 0) if match else None


def _timestamp(folder: Path) -> str:
    try:
        return read_bytes(folder / TIMESTAMP)[:100].decode("utf-8", "replace").strip()
    except Refused:
        return ""
