"""A submitted notebook, read with suspicion."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

# Bytes of a notebook with its outputs, and the strings and brackets in it. The parser takes about 3 bytes for each byte of long strings,
# but 60 and more for each short one or bracket: with these limits it stays below 1 GB, whatever the file is.
LARGEST, MOST_STRINGS, MOST_BRACKETS = 100_000_000, 5_000_000, 4_000_000
MOST_CELLS, MOST_CODE = 2_000, 2_000_000  # what is left of it without them: cells, and characters in all


# A backup that links what has not changed looks the same, and so do files that were linked to save space. nbgrader copies.
COPY = "if the whole folder is linked, as in a backup, grade a plain copy of it"


class Unreadable(ValueError):
    """The file is no notebook. `status` is the submission's."""

    status = "unreadable"


class Refused(Unreadable):
    """The file was not read to its end, whatever is in it."""

    status = "refused"


def read_bytes(path: Path) -> bytes:
    """The content of a regular file that has one name only. Never follows a link, and never waits for what a pipe might bring.

    Raises:
        Refused: for anything else, and for a file that is too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        kind = file_kind(path)
        raise Refused(f"{path.name} is {kind}, not a file" if kind else f"{path.name} cannot be opened: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Refused(f"{path.name} is {file_kind(path)}, not a file")
        if about.st_nlink > 1:
            raise Refused(f"{path.name} is a hard link, another name of a file that may be somebody else's; {COPY}")
        if about.st_size > LARGEST:
            raise Refused(f"{path.name} has {about.st_size / 1e6:,.0f} MB; at most {LARGEST / 1e6:.0f} are read")
        return file.read(LARGEST)


def file_kind(path: Path) -> str:
    """What the path is if it is no regular file, otherwise nothing. Links are not followed."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return ""
    names = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return "" if stat.S_ISREG(mode) else names.get(stat.S_IFMT(mode), "a device")


@dataclass(frozen=True)
class Cell:
    """What counts of a submitted cell: its text, and the ids by which it is known again. Outputs, however large, are dropped."""

    cell_type: str
    source: str
    id: str
    grade_id: str


def read(path: Path) -> list[Cell]:
    """The cells of the notebook in the file, nbformat 3 or 4, valid in every detail or not.

    Raises:
        Unreadable: saying why it is no notebook, or why it was refused.
    """
    return parse(read_bytes(path))


def parse(content: bytes) -> list[Cell]:
    """The cells of a notebook file's content; as `read`."""
    if content.count(b'"') > 2 * MOST_STRINGS or content.count(b"[") + content.count(b"{") > MOST_BRACKETS:
        raise Refused(f"the file has {len(content) / 1e6:,.0f} MB of millions of small parts")
    try:
        plain = json.loads(content, object_hook=_without_outputs)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the file is not JSON ({type(error).__name__}: {str(error)[:120]})") from error
    try:
        sheets = [plain] if "cells" in plain else plain["worksheets"]  # nbformat 3 has worksheets
        cells = [_cell(cell) for sheet in sheets for cell in sheet["cells"]]
    except (AttributeError, KeyError, TypeError) as error:
        raise Unreadable("the file is JSON, but no notebook: it has no list of cells") from error
    if len(cells) > MOST_CELLS or sum(len(cell.source) for cell in cells) > MOST_CODE:
        raise Refused(f"the notebook has {len(cells):,} cells with {sum(len(cell.source) for cell in cells):,} characters")
    return cells


def _without_outputs(value: dict) -> dict:
    """Drops each output as soon as it is parsed: a notebook of 50 MB is almost nothing else."""
    return {} if "output_type" in value else value


def _cell(cell: dict) -> Cell:
    source = cell.get("source", cell.get("input", ""))
    metadata = cell.get("metadata")
    grade = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return Cell(
        cell_type=str(cell.get("cell_type")),
        source="".join(map(str, source)) if isinstance(source, list) else str(source),
        id=str(cell.get("id", "")),
        grade_id=str(grade.get("grade_id", "")) if isinstance(grade, dict) else "",
    )
