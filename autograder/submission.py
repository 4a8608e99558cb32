"""What students hand in, as it really comes: found in a folder of one of several layouts, and never anything that a link points to.

What becomes of each odd case is the table in `cases.py`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from autograder.rebuilding import Refused, Unreadable, file_kind, parse, read, read_bytes, rebuild

__all__ = [
    "NOTEBOOK", "Refused", "Submission", "Unreadable",
    "collect", "fingerprint", "in_folder", "parse", "read", "read_bytes", "rebuild",
]  # fmt: skip

NOTEBOOK = "exercise.ipynb"
TIMESTAMP = "timestamp.txt"  # nbgrader's, beside the notebook
COURSE_FILES = ("source", "release", "gradebook.db", "nbgrader_config.py")  # beside submitted/ in a course's folder


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


def fingerprint(submission: Submission) -> str:
    """SHA-256 of the notebook file's bytes; "" if there is none, or none that may be read."""
    try:
        return hashlib.sha256(read_bytes(submission.path)).hexdigest() if submission.path else ""
    except Refused:
        return ""


def collect(source: Path, known: list[str], assignment: str = "", unpacked: Path | None = None) -> list[Submission]:
    """Everything that a source holds, and a row for everything in it that cannot be graded. Sorted by student.

    source: a folder laid out as student/NN-slug/exercise.ipynb, an nbgrader course with submitted/, nbgrader's inbound folder
        (student+assignment+time), or the files of a Canvas download: a folder of them, or the zip itself.
    assignment: which one a Canvas download is of; its file names do not say.
    unpacked: an empty folder for the notebooks in a zip.

    Raises:
        ValueError: if a zip comes without its assignment or without a folder to unpack it, and for an assignment that there is not.
    """
    from autograder import canvas  # which needs Submission

    if source.is_file():
        if unpacked is None:
            raise ValueError(f"{source.name} needs a folder in which to unpack its notebooks")
        found = canvas.from_zip(source, _named(assignment, known), unpacked)
    else:
        folder = _submitted(source)
        loose = [path for path in _entries(folder) if assignment and canvas.parts(path.name) and file_kind(path) != "a folder"]
        found = canvas.from_files(loose, _named(assignment, known)) if loose else []
        inbound: dict[tuple[str, str], list[tuple[str, Path]]] = {}
        for entry in _entries(folder):
            if entry in loose:
                continue
            student, name, time = _inbound(entry, known)
            if time:
                inbound.setdefault((student, name), []).append((time, entry))
            else:
                found += _student(entry, known)
        found += [_latest(student, name, attempts) for (student, name), attempts in inbound.items()]
    return sorted(_warned_of_namesakes(found), key=lambda s: (s.student, s.assignment, s.notes))


def _entries(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "__"))]


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
    found = [_assignment(entry.name, path, known) for path in _entries(entry)]
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


def in_folder(student: str, assignment: str, folder: Path) -> Submission:
    """The notebook that counts in an assignment's folder: exercise.ipynb, or its last resubmission exercise-N.ipynb, or the only one."""
    notebooks = [path for path in _entries(folder) if path.suffix == ".ipynb"]
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


def _warned_of_namesakes(found: Iterable[Submission]) -> list[Submission]:
    """Students whose names differ only in upper and lower case stay two, and their marks say so."""
    found = list(found)
    names = Counter(_alike(name) for name in {submission.student for submission in found})
    note = "another student's name differs only in upper and lower case"
    return [replace(s, notes=(*s.notes, note)) if names[_alike(s.student)] > 1 else s for s in found]


def _alike(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
