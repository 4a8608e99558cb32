"""A submitted notebook, put into a pristine copy of the exercise."""

from __future__ import annotations

import ast
from functools import lru_cache

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from autograder.intake.reading import Cell


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
