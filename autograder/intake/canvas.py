"""Submissions as Canvas hands them over: one zip with a file for each upload, whose name says whose it is."""

from __future__ import annotations

import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autograder.intake.reading import LARGEST, file_kind
from autograder.intake.submission import NOTEBOOK, Submission, attempt

MOST_FILES, MOST_BYTES = 20_000, 20_000_000_000  # in one zip: as many as a large course has, not as many as a bomb
NAMED = re.compile(r"(?P<name>.+?)(?P<late>_LATE|_late)?_(?P<user>\d{1,20})_(?P<file>\d{1,20})_(?P<original>.+)", re.DOTALL)
ANONYMOUS = re.compile(r"anon(?P<late>_LATE|_late)?_(?P<user>[A-Za-z0-9]{5})_(?P<file>\d{1,20})_(?P<original>.+)", re.DOTALL)


@dataclass(frozen=True)
class Upload:
    """What a file's name says: lovelaceada_LATE_1234_56789_exercise-1.ipynb. A resubmitted file gets -1, -2, … before its ending."""

    student: str
    user: str
    late: bool
    number: int
    original: str

    @property
    def rank(self) -> tuple[bool, int, int, str]:
        """By which the upload that counts is chosen: the exercise's own name, the attempt, Canvas's number of the file, the name."""
        own = attempt(self.original)
        return own is not None, own or 0, self.number, self.original


def parts(name: str) -> Upload | None:
    """What a file name of a Canvas download says; None if it is none."""
    if match := ANONYMOUS.fullmatch(name):
        return Upload(f"anon_{match['user']}", "", bool(match["late"]), int(match["file"]), match["original"])
    if match := NAMED.fullmatch(name):
        student = f"{match['name']}_{match['user']}"  # two people may have the same name
        return Upload(student, match["user"], bool(match["late"]), int(match["file"]), match["original"])
    return None


def from_files(files: Sequence[Path], assignment: str) -> list[Submission]:
    """The submissions in a folder into which a Canvas zip was unpacked. Every name must have `parts`."""
    return _chosen(((parts(path.name), path, file_kind(path)) for path in files), assignment)


def from_zip(archive: Path, assignment: str, folder: Path) -> list[Submission]:
    """The submissions in a Canvas zip. Their notebooks are unpacked into `folder` under names of our own, whatever theirs say.

    Raises:
        ValueError: if the file is no zip, or has more in it than any course hands in.
    """
    try:
        with zipfile.ZipFile(archive) as content:
            members = [member for member in content.infolist() if not _is_ignored(member.filename)]
            if len(members) > MOST_FILES:
                raise ValueError(f"{archive.name} has {len(members):,} files; at most {MOST_FILES:,} are unpacked")
            uploads, strangers, left = [], [], MOST_BYTES
            for number, member in enumerate(members):
                upload = parts(member.filename)
                if upload is None or re.search(r"[/\\]", member.filename):
                    strangers.append(_stranger(member.filename))
                    continue
                path, problem = folder / f"{number:05d}.ipynb", ""
                if upload.original.endswith(".ipynb"):
                    problem = _unpack(content, member, path, min(LARGEST, left))
                    left -= path.stat().st_size if path.exists() else 0
                uploads.append((upload, path, problem))
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive.name} is no zip file: {error}") from error
    return [*_chosen(uploads, assignment), *strangers]


def _is_ignored(name: str) -> bool:
    """Folders, and what operating systems leave in a zip."""
    return name.endswith("/") or any(part.startswith((".", "__")) and part != ".." for part in name.split("/"))


def _stranger(name: str) -> Submission:
    why = f"the name {name[:200]!r} in the zip is none that Canvas gives; nothing was unpacked"
    return Submission(re.split(r"[/\\]", name)[-1] or "unnamed", "", None, "misplaced", (why,))


def _unpack(content: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, limit: int) -> str:
    """Writes one member, and counts what really comes out. Returns what is wrong with it, or nothing."""
    if stat.S_ISLNK(member.external_attr >> 16):
        return "a link"
    try:
        with content.open(member) as packed, path.open("xb") as file:
            while chunk := packed.read(1 << 20):
                if file.tell() + len(chunk) > limit:
                    break
                file.write(chunk)
            else:
                return ""
        problem = f"larger than {limit / 1e6:,.0f} MB"
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        problem = f"damaged ({str(error)[:100]})"
    path.unlink(missing_ok=True)
    return problem


def _chosen(uploads: Iterable[tuple[Upload, Path, str]], assignment: str) -> list[Submission]:
    """One submission for each student: the upload with the highest rank among the notebooks; the others are noted."""
    by_student: dict[str, list[tuple[Upload, Path, str]]] = {}
    for upload in uploads:
        by_student.setdefault(upload[0].student, []).append(upload)
    return [_submission(student, own, assignment) for student, own in by_student.items()]


def _submission(student: str, own: list[tuple[Upload, Path, str]], assignment: str) -> Submission:
    ordered = sorted(own, key=lambda item: item[0].rank)
    notebooks = [item for item in ordered if item[0].original.endswith(".ipynb")]
    user = ordered[-1][0].user
    if not notebooks:
        names = ", ".join(item[0].original for item in ordered)
        return Submission(student, assignment, None, "missing", (f"there is no notebook, only {names}",), canvas_id=user)
    *others, (upload, path, problem) = notebooks
    notes = ["handed in late, says Canvas"] if upload.late else []
    if upload.original != NOTEBOOK:
        notes.append(f"{upload.original} was graded as {NOTEBOOK}")
    notes += [f"the other upload {other.original} was not graded" for other, _, _ in others]
    if problem:
        reason = f"{upload.original} is {problem}"
        return Submission(student, assignment, None, "refused", (reason, *notes), canvas_id=user)
    return Submission(student, assignment, path, notes=tuple(notes), canvas_id=user)
