"""What students hand in, as it really comes: found in a folder, read with suspicion, and put into a pristine copy of the exercise."""

from __future__ import annotations

import ast
import difflib
import json
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

NOTEBOOK = "exercise.ipynb"


@dataclass(frozen=True)
class Submission:
    """One notebook to grade; or, where `status` is set, why there is none. `notes` are remarks for the row's message."""

    student: str
    assignment: str
    path: Path | None = None
    status: str = ""
    notes: tuple[str, ...] = ()


class Unreadable(ValueError):
    """The file is no notebook."""


def collect(folder: Path, known: list[str]) -> list[Submission]:
    """Everything in a folder laid out as student/NN-slug/exercise.ipynb, and a row for everything that is laid out otherwise."""
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "__")):
            continue
        if not entry.is_dir():
            found.append(Submission(entry.stem, "", None, "misplaced", (f"{entry.name} lies outside a student's folder",)))
            continue
        inside = [path for path in sorted(entry.iterdir()) if not path.name.startswith((".", "__"))]
        found += [_assignment(entry.name, path, known) for path in inside]
        if not inside:
            found.append(Submission(entry.name, "", None, "empty", ("the student's folder is empty",)))
    return found


def _assignment(student: str, path: Path, known: list[str]) -> Submission:
    if not path.is_dir():
        return Submission(student, path.stem, None, "misplaced", (f"{path.name} lies outside an assignment's folder",))
    if path.name not in known:
        near = difflib.get_close_matches(path.name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
        return Submission(student, path.name, None, "unknown", (f"no assignment is called {path.name}{hint}",))
    notebooks = [p for p in sorted(path.glob("*.ipynb")) if p.is_file()]
    if path / NOTEBOOK in notebooks:
        return Submission(student, path.name, path / NOTEBOOK)
    if len(notebooks) == 1:
        return Submission(student, path.name, notebooks[0], notes=(f"{notebooks[0].name} was graded as {NOTEBOOK}",))
    what = "there is no notebook" if not notebooks else f"none of {len(notebooks)} notebooks is called {NOTEBOOK}"
    return Submission(student, path.name, None, "missing", (what,))


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
        Unreadable: saying why it is no notebook.
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise Unreadable(f"the file is not JSON ({type(error).__name__}: {str(error)[:120]})") from error
    try:
        sheets = [plain] if "cells" in plain else plain["worksheets"]  # nbformat 3 has worksheets
        return [_cell(cell) for sheet in sheets for cell in sheet["cells"]]
    except (AttributeError, KeyError, TypeError) as error:
        raise Unreadable("the file is JSON, but no notebook: it has no list of cells") from error


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
    return rebuilt, notes


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


def _defined(source: str) -> set[str]:
    """The functions and classes that a cell defines; nothing if it does not parse."""
    try:
        return {node.name for node in ast.parse(source).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    except (SyntaxError, ValueError):
        return set()
