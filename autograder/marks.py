"""Marks: the plain data that a graded submission becomes, and the ledger that keeps them from one run to the next."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from autograder import files

# What can become of a submission, and what the instructor reads about it.
STATUS = {
    "graded": "the checks were made",
    "timeout": "some code did not end in time; what passed has its points",
    "crashed": "some code ended the Python process; what passed before has its points",
    "unreadable": "the file is no notebook",
    "refused": "the file was not read: a link (hard ones too), a pipe, a folder, or too large",
    "missing": "the assignment's folder has no notebook that could be meant",
    "unknown": "the folder is called like no assignment",
    "misplaced": "a file lies where a folder should be",
    "empty": "the student's folder is empty",
    "error": "the grader itself failed: look at the message, nothing is the student's fault",
}
RUN = ("graded", "timeout", "crashed")  # the student's code was run; with any other status nothing of it was
FORMAT = 1


class Damaged(ValueError):
    """The text is no mark that `to_json` has written."""


@dataclass(frozen=True)
class CheckMark:
    """What one graded cell came to. `name` is the check's, "02.exact_law"; `grade_id` is nbgrader's, "check_exact_law".

    message, expected, got, hint, printed, picture: as in `checks.core.Result`.
    seed: what the check's fixtures were made from, so that it can be repeated.
    """

    name: str
    grade_id: str
    points: float
    max_points: float
    message: str
    expected: str = ""
    got: str = ""
    hint: str = ""
    printed: str = ""
    picture: dict | None = None
    seed: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.points >= self.max_points


@dataclass(frozen=True)
class Mark:
    """What one submission came to: all graded cells of its assignment, with 0 points where nothing could be run.

    status: a key of STATUS.
    submission: SHA-256 of the notebook file's bytes, "" if there is none.
    version: of the checks that gave the mark.
    """

    student: str
    assignment: str
    status: str
    checks: tuple[CheckMark, ...]
    notes: tuple[str, ...] = ()
    submission: str = ""
    version: str = ""

    @property
    def score(self) -> float:
        return math.fsum(check.points for check in self.checks)

    @property
    def max_score(self) -> float:
        return math.fsum(check.max_points for check in self.checks)

    @property
    def judged(self) -> bool:
        """Whether there is a score at all: where the grader itself failed there is none, and no table may give the student 0."""
        return self.status != "error"

    @property
    def passed(self) -> bool:
        return self.status == "graded" and all(check.passed for check in self.checks)

    @property
    def message(self) -> str:
        """One line: what failed, once for all checks that say the same, and the notes."""
        failed: dict[str, list[str]] = {}
        for check in self.checks if self.status in RUN else ():
            if not check.passed:
                failed.setdefault(check.message, []).append(check.name)
        parts = [*(f"{', '.join(names)}: {message}" for message, names in failed.items()), *self.notes]
        if not failed:
            parts = ["every check passed", *parts] if self.status in RUN else parts or [STATUS[self.status]]
        return " ".join("; ".join(parts).split())


# -- to JSON and back --------------------------------------------------------------------------------------------------


def to_json(mark: Mark) -> str:
    """The mark as JSON text, with a digest by which damage is noticed. A picture that is no plain data is left out, with a note."""
    try:
        return _written(mark)
    except (TypeError, ValueError, RecursionError) as error:
        checks = tuple(replace(check, picture=None) for check in mark.checks)
        return _written(replace(mark, checks=checks, notes=(*mark.notes, f"the pictures were left out: {error}")))


def from_json(text: str | bytes) -> Mark:
    """The mark that `to_json` wrote.

    Raises:
        Damaged: if the text is anything else.
    """
    try:
        outer = json.loads(text)
        if outer["format"] != FORMAT or outer["sha256"] != _digest(outer["mark"]):
            raise Damaged("the digest or the format is another")
        plain = dict(outer["mark"])
        checks = tuple(_made(CheckMark, {**check, "picture": _decoded(check["picture"])}) for check in plain.pop("checks"))
        mark = _made(Mark, {**plain, "checks": checks, "notes": tuple(plain["notes"])})
    except Damaged:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{type(error).__name__}: {str(error)[:200]}") from error
    if mark.status not in STATUS:
        raise Damaged(f"the status {mark.status!r} is unknown")
    return mark


def _written(mark: Mark) -> str:
    checks = [{**vars(check), "picture": _encoded(check.picture)} for check in mark.checks]
    plain = {**vars(mark), "checks": checks, "notes": list(mark.notes)}
    return json.dumps({"format": FORMAT, "mark": plain, "sha256": _digest(plain)}, indent=1, allow_nan=False) + "\n"


def _digest(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _made(kind: type, values: dict[str, Any]) -> Any:
    """A dataclass from its fields' values, each of exactly the type that the field declares."""
    if values.keys() != {field.name for field in fields(kind)}:
        raise Damaged(f"a {kind.__name__} has the fields {', '.join(values)}")
    for field in fields(kind):
        value = values[field.name]
        right = {
            "str": isinstance(value, str),
            "int": type(value) is int,
            "float": type(value) in (int, float) and math.isfinite(value),
            "dict | None": value is None or isinstance(value, dict),
            "tuple[str, ...]": isinstance(value, tuple) and all(isinstance(item, str) for item in value),
            "tuple[CheckMark, ...]": isinstance(value, tuple),  # made here
        }
        if not right[field.type]:
            raise Damaged(f"{kind.__name__}.{field.name} is {str(value)[:80]!r}")
    return kind(**values)


def _encoded(value: Any) -> Any:
    """Plain data as JSON can hold it: tuples, dictionaries with any keys, and numbers that are not finite are spelled out."""
    if hasattr(value, "tolist"):  # of numpy and torch
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encoded(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(key), _encoded(item)] for key, item in value.items()]}
    raise TypeError(f"{type(value).__name__} is no plain data")


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "float":
        return float(inner)
    if kind == "tuple":
        return tuple(_decoded(item) for item in inner)
    if kind == "dict":
        return {_decoded(key): _decoded(item) for key, item in inner}
    raise Damaged(f"a value of the kind {kind!r}")


# -- the ledger --------------------------------------------------------------------------------------------------------


class Ledger:
    """A folder with one file for each student and assignment: the last mark. Only one process may write it.

    A file that is damaged counts as not there: the submission is graded again. `damaged` tells which were met, and why.
    """

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.damaged: dict[Path, str] = {}

    def find(self, student: str, assignment: str, submission: str, version: str) -> Mark | None:
        """The mark of exactly this submission under exactly these checks, if there is one."""
        mark = self._read(self._path(student, assignment))
        return mark if mark and (mark.submission, mark.version) == (submission, version) else None

    def store(self, mark: Mark) -> None:
        """Keeps the mark, whole and on disk when this returns, in place of an older one."""
        files.write(self._path(mark.student, mark.assignment), to_json(mark))

    def all(self) -> list[Mark]:
        """Every mark, sorted by student and assignment."""
        marks = filter(None, (self._read(path) for path in self.folder.glob("[!.]*.json")))
        return sorted(marks, key=lambda mark: (mark.student, mark.assignment))

    def _path(self, student: str, assignment: str) -> Path:
        """A file name that every file system takes, whatever the student is called; the digest tells apart what it flattens."""
        digest = hashlib.sha256(f"{student}/{assignment}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        plain = re.sub(r"[^a-z0-9]+", "-", f"{assignment} {student}".lower())[:60].strip("-")
        return self.folder / f"{plain}-{digest}.json"

    def _read(self, path: Path) -> Mark | None:
        self.damaged.pop(path, None)
        try:
            mark = from_json(path.read_bytes())
            if self._path(mark.student, mark.assignment) != path:
                raise Damaged("it is the mark of another submission")
            return mark
        except FileNotFoundError:
            return None
        except (Damaged, OSError) as error:
            self.damaged[path] = str(error)
            return None
