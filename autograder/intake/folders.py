"""What students hand in, as it really comes: found in a folder of one of several layouts, and never anything that a link points to.

What becomes of each odd case is the table in `cases.py`.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from autograder.intake import canvas
from autograder.intake.reading import file_kind
from autograder.intake.submission import Submission, entries, in_folder

COURSE_FILES = ("source", "release", "gradebook.db", "nbgrader_config.py")  # beside submitted/ in a course's folder


def collect(source: Path, known: list[str], assignment: str = "", unpacked: Path | None = None) -> list[Submission]:
    """Everything that a source holds, and a row for everything in it that cannot be graded. Sorted by student.

    source: a folder laid out as student/NN-slug/exercise.ipynb, an nbgrader course with submitted/, nbgrader's inbound folder
        (student+assignment+time), or the files of a Canvas download: a folder of them, or the zip itself.
    assignment: which one a Canvas download is of; its file names do not say.
    unpacked: an empty folder for the notebooks in a zip.

    Raises:
        ValueError: if a zip comes without its assignment or without a folder to unpack it, and for an assignment that there is not.
    """
    if source.is_file():
        if unpacked is None:
            raise ValueError(f"{source.name} needs a folder in which to unpack its notebooks")
        found = canvas.from_zip(source, _named(assignment, known), unpacked)
    else:
        folder = _submitted(source)
        loose = [path for path in entries(folder) if assignment and canvas.parts(path.name) and file_kind(path) != "a folder"]
        found = canvas.from_files(loose, _named(assignment, known)) if loose else []
        inbound: dict[tuple[str, str], list[tuple[str, Path]]] = {}
        for entry in entries(folder):
            if entry in loose:
                continue
            student, name, time = _inbound(entry, known)
            if time:
                inbound.setdefault((student, name), []).append((time, entry))
            else:
                found += _student(entry, known)
        found += [_latest(student, name, attempts) for (student, name), attempts in inbound.items()]
    return sorted(_warned_of_namesakes(found), key=lambda s: (s.student, s.assignment, s.notes))


def _submitted(folder: Path) -> Path:
    """The folder itself, or the folder of submissions in an nbgrader course."""
    inside = folder / "submitted"
    return inside if file_kind(inside) == "a folder" and _is_course(folder) else folder


def _is_course(folder: Path) -> bool:
    return any((folder / name).exists() for name in COURSE_FILES)


def _named(assignment: str, known: list[str]) -> str:
    if assignment not in known:
        raise ValueError(f"a Canvas download is of one assignment, and its file names do not say which: one of {', '.join(known)}")
    return assignment


def _inbound(entry: Path, known: list[str]) -> tuple[str, str, str]:
    """(student, assignment, time) of a folder that nbgrader's exchange made; otherwise no time."""
    parts = entry.name.split("+")
    for cut in range(1, len(parts) - 1):
        if parts[cut] in known and re.match(r"\d{4}-\d\d-\d\d", parts[cut + 1]):
            return "+".join(parts[:cut]), parts[cut], parts[cut + 1]
    return "", "", ""


def _latest(student: str, assignment: str, attempts: list[tuple[str, Path]]) -> Submission:
    """The last of a student's attempts; of two at the same time the one that sorts last by name."""
    *earlier, (time, entry) = sorted(attempts, key=lambda attempt: (attempt[0], attempt[1].name))
    submission = in_folder(student, assignment, entry)
    notes = tuple(f"an earlier submission of {when} was not graded" for when, _ in earlier)
    return replace(submission, timestamp=submission.timestamp or time, notes=submission.notes + notes)


def _student(entry: Path, known: list[str]) -> list[Submission]:
    """Everything in one student's folder."""
    kind = file_kind(entry)
    if kind == "":
        why = f"the file {entry.name} lies outside a student's folder, and without an assignment it is no Canvas upload"
        return [Submission(entry.stem, "", None, "misplaced", (why,))]
    if kind != "a folder":
        return [Submission(entry.name, "", None, "refused", (f"{entry.name} is {kind}, not a folder",))]
    found = [_assignment(entry.name, path, known) for path in entries(entry)]
    return found or [Submission(entry.name, "", None, "empty", ("the student's folder is empty",))]


def _assignment(student: str, path: Path, known: list[str]) -> Submission:
    kind = file_kind(path)
    if kind == "":
        return Submission(student, path.stem, None, "misplaced", (f"the file {path.name} lies outside an assignment's folder",))
    if kind != "a folder":
        return Submission(student, path.name, None, "refused", (f"{path.name} is {kind}, not a folder",))
    if path.name not in known:
        near = difflib.get_close_matches(path.name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
        return Submission(student, path.name, None, "unknown", (f"no assignment is called {path.name}{hint}",))
    return in_folder(student, path.name, path)


def _warned_of_namesakes(found: Iterable[Submission]) -> list[Submission]:
    """Students whose names differ only in upper and lower case stay two, and their marks say so."""
    found = list(found)
    names = Counter(_alike(name) for name in {submission.student for submission in found})
    note = "another student's name differs only in upper and lower case"
    return [replace(s, notes=(*s.notes, note)) if names[_alike(s.student)] > 1 else s for s in found]


def _alike(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
