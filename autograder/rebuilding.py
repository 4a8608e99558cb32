"""A submitted notebook, read with suspicion, and put into a pristine copy of the exercise."""

from __future__ import annotations

import ast
import json
import os
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

# Bytes of a notebook with its outputs, and the strings and brackets in it. The parser takes about 3 bytes for each byte of long strings,
# but 60 and more for each short one or bracket: with these limits it stays below 1 GB, whatever the file is.
LARGEST, MOST_STRINGS, MOST_BRACKETS = 100_000_000, 5_000_000, 4_000_000
MOST_CELLS, MOST_CODE = 2_000, 2_000_000  # what is left of it without them: cells, and characters in all


class Unreadable(ValueError):
    """The file is no notebook. `status` is the submission's."""

    status = "unreadable"


class Refused(Unreadable):
    """The file was not read to its end, whatever is in it."""

    status = "refused"


def read_bytes(path: Path) -> bytes:
    """The content of a regular file. Never follows a link, and never waits for what a pipe might bring.

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


def rebuild(submitted: list[Cell], release: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """The release with the student's solution cells in it, and the student's other code cells where they stood. Also remarks.

    Checks and given cells are the release's own, whether the student's copy edited, duplicated or deleted them, so that nbgrader
    meets nothing unexpected. A cell is known by its grade_id, its id or its text; a solution, where all are lost, by the name of the
    function that it defines.
    """
    match = _matches(submitted, release.cells)
    extras: dict[int, list[str]] = {}
    anchor = -1
    for number, cell in enumerate(submitted):
        anchor = match.get(number, anchor)
        if number not in match and cell.cell_type == "code" and cell.source.strip() and not _is_given(cell, release.cells):
            extras.setdefault(anchor, []).append(cell.source)
    texts = {place: submitted[number].source for number, place in match.items()}
    rebuilt, notes = nbformat.from_dict({**release, "cells": []}), []
    for place in range(-1, len(release.cells)):
        if place >= 0:
            cell = nbformat.from_dict(release.cells[place])
            if _is_solution(cell):
                cell.source = texts.get(place, cell.source)
                if place not in texts:
                    notes.append(f"the cell {cell.metadata.nbgrader.grade_id} is missing")
            rebuilt.cells.append(cell)
        for source in extras.get(place, []):
            rebuilt.cells.append(new_code_cell(source, id=f"extra-{len(rebuilt.cells)}"))
    return rebuilt, notes + _defined_twice(rebuilt.cells, release.cells)


def _defined_twice(rebuilt: list[NotebookNode], release: list[NotebookNode]) -> list[str]:
    """A remark for each function of the exercise that the student defines in several cells, differently."""
    asked = sorted(name for cell in release if _is_solution(cell) for name in _defined(cell.source))
    sources = {name: {cell.source.strip() for cell in rebuilt if name in _defined(cell.source)} for name in asked}
    return [f"{name} is defined in {len(sources[name])} cells; the last one counts" for name in asked if len(sources[name]) > 1]


def _matches(submitted: list[Cell], release: list[NotebookNode]) -> dict[int, int]:
    """{index of a submitted cell: index of the release's cell that it is}. The first of several copies counts; others are extras."""
    match: dict[int, int] = {}

    def take(same) -> None:
        for place, wanted in enumerate(release):
            if place not in match.values():
                number = next((n for n, cell in enumerate(submitted) if n not in match and same(cell, wanted)), None)
                if number is not None:
                    match[number] = place

    take(lambda cell, wanted: cell.grade_id and cell.grade_id == wanted.metadata.get("nbgrader", {}).get("grade_id"))
    take(lambda cell, wanted: cell.id and cell.id == wanted.id and cell.cell_type == wanted.cell_type)
    take(lambda cell, wanted: cell.source.strip() == wanted.source.strip())
    take(lambda cell, wanted: _is_solution(wanted) and _defined(wanted.source) <= _defined(cell.source))
    return match


def _is_solution(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def _is_given(cell: Cell, release: list[NotebookNode]) -> bool:
    """Another copy of a cell that the release has."""
    return any(cell.source.strip() == given.source.strip() for given in release)


@lru_cache(maxsize=4096)
def _defined(source: str) -> frozenset[str]:
    """The functions and classes that a cell defines; nothing if it does not parse."""
    try:
        return frozenset(node.name for node in ast.parse(source).body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last is the parser's word for too many brackets
        return frozenset()
