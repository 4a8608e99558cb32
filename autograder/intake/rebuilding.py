"""A submitted notebook, put into a pristine copy of the exercise."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from autograder.inside.shell import without_magics
from autograder.intake.reading import Cell

EXTRA, CHANGED = "extra-", "changed-"  # begin the ids of cells that are the student's own, and of given ones in the student's version


def rebuild(submitted: list[Cell], release: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """The release with the student's solution cells in it, and the student's other code cells where they stood. Also remarks.

    Checks are the release's own, whether the student's copy edited, duplicated or deleted them, so that nbgrader meets nothing
    unexpected. So are given cells; but the student's version of one that was changed stands before it, so that what was added to it is
    there. A cell is known by its grade_id, its id or its text; where all are lost a solution is known by the name that it defines, and
    a given cell by half of its lines.
    """
    match = _matches(submitted, release.cells)
    texts = {place: submitted[number].source for number, place in match.items()}
    extras = _extras(submitted, match, release.cells)
    own = {name for source in (*_run(texts, release.cells), *chain(*extras.values())) for name in bound(source)}
    rebuilt, notes = nbformat.from_dict({**release, "cells": []}), []
    for place in range(-1, len(release.cells)):
        if place >= 0:
            cell, text = nbformat.from_dict(release.cells[place]), texts.get(place)
            if _is_solution(cell):
                notes += _put(cell, text, own)
            elif text is not None and _is_check(cell):
                notes += _lost(cell, text)
            elif text is not None and cell.cell_type == "code" and not _same(text, cell.source):
                rebuilt.cells.append(new_code_cell(text, id=f"{CHANGED}{cell.id}"))
                notes.append(_changed(cell, text))
            rebuilt.cells.append(cell)
        for source in extras.get(place, []):
            rebuilt.cells.append(new_code_cell(source, id=f"{EXTRA}{len(rebuilt.cells)}"))
    return rebuilt, notes + _defined_twice(rebuilt.cells, release.cells)


def title(cell: NotebookNode) -> str:
    """What a student knows a code cell by."""
    if own := cell.metadata.get("nbgrader", {}).get("grade_id"):
        return f"the cell {own}"
    begins = next((line.strip() for line in cell.source.splitlines() if line.strip()), "")
    short = begins if len(begins) <= 50 else f"{begins[:50]} …"
    return f"{'your' if cell.id.startswith((EXTRA, CHANGED)) else 'the given'} cell that begins with `{short}`"


def _extras(submitted: list[Cell], match: Mapping[int, int], release: list[NotebookNode]) -> dict[int, list[str]]:
    """{place: the student's own code cells behind that of the release}; -1 is before all."""
    extras: dict[int, list[str]] = {}
    anchor = -1
    for number, cell in enumerate(submitted):
        anchor = match.get(number, anchor)
        if number not in match and cell.cell_type == "code" and cell.source.strip() and not _is_given(cell, release):
            extras.setdefault(anchor, []).append(cell.source)
    return extras


def _run(texts: Mapping[int, str], release: list[NotebookNode]) -> Iterable[str]:
    """The student's versions of the release's cells that are run."""
    return (text for place, text in texts.items() if release[place].cell_type == "code" and not _is_check(release[place]))


def _put(cell: NotebookNode, text: str | None, own: set[str]) -> list[str]:
    """The student's solution into its cell. Where there is none the stub stays, unless that would undo what another cell defines."""
    if text is not None:
        cell.source = text
        return []
    names = sorted(_defined(cell.source))
    if own.issuperset(names):
        cell.source = f"# {', '.join(names)}: defined in another cell"
        return []
    return [f"the cell {cell.metadata.nbgrader.grade_id} is missing"]


def _lost(cell: NotebookNode, text: str) -> list[str]:
    names = sorted(bound(text).keys() - bound(cell.source).keys())
    said = f"check cells are the released ones, so what you defined in {title(cell)} is lost: {', '.join(names)}"
    return [said] if names else []


def _changed(cell: NotebookNode, text: str) -> str:
    """The remark on a given cell that is another than the released one."""
    given, theirs = bound(cell.source), bound(text)
    back = sorted(name for name in given.keys() & theirs.keys() if _dumped(given[name]) != _dumped(theirs[name]))
    kept = f", so {', '.join(back)} {'is' if len(back) == 1 else 'are'} as released" if back else ""
    return f"{title(cell)} was changed: your version was run, and then the released one{kept}"


def _defined_twice(rebuilt: list[NotebookNode], release: list[NotebookNode]) -> list[str]:
    """A remark for each function of the exercise that the student defines in several cells, differently."""
    asked = sorted(name for cell in release if _is_solution(cell) for name in _defined(cell.source))
    sources = {name: {cell.source.strip() for cell in rebuilt if cell.cell_type == "code" and name in bound(cell.source)} for name in asked}
    return [f"{name} is defined in {len(sources[name])} cells; the last one counts" for name in asked if len(sources[name]) > 1]


def _matches(submitted: list[Cell], release: list[NotebookNode]) -> dict[int, int]:
    """{index of a submitted cell: index of the release's cell that it is}. The first of several copies counts; others are extras."""
    match: dict[int, int] = {}

    def take(same: Callable[[Cell, NotebookNode], object]) -> None:
        for place, wanted in enumerate(release):
            if place not in match.values():
                number = next((n for n, cell in enumerate(submitted) if n not in match and same(cell, wanted)), None)
                if number is not None:
                    match[number] = place

    take(lambda cell, wanted: cell.grade_id and cell.grade_id == wanted.metadata.get("nbgrader", {}).get("grade_id"))
    take(lambda cell, wanted: cell.id and cell.id == wanted.id and cell.cell_type == wanted.cell_type)
    take(lambda cell, wanted: cell.source.strip() == wanted.source.strip())
    take(lambda cell, wanted: _is_solution(wanted) and cell.cell_type == "code" and _defined(wanted.source) <= _defined(cell.source))
    take(lambda cell, wanted: _is_given_code(wanted) and cell.cell_type == "code" and _resembles(cell.source, wanted.source))
    return match


def _is_solution(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def _is_check(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("grade"))


def _is_given_code(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and not _is_solution(cell) and not _is_check(cell)


def _is_given(cell: Cell, release: list[NotebookNode]) -> bool:
    """Another copy of a cell that the release has."""
    return any(cell.source.strip() == given.source.strip() for given in release)


def _resembles(source: str, given: str) -> bool:
    lines = {line.strip() for line in given.splitlines() if line.strip()}
    return 2 * len(lines & {line.strip() for line in source.splitlines()}) >= len(lines) > 0


def _same(source: str, given: str) -> bool:
    """Whether two cells do the same: as texts, or but for comments and spaces."""
    if source.strip() == given.strip():
        return True
    theirs, ours = _parsed(source), _parsed(given)
    return theirs is not None and ours is not None and list(map(_dumped, theirs)) == list(map(_dumped, ours))


def bound(source: str) -> dict[str, ast.AST]:
    """{name: what binds it} of the names that a cell defines, imports or assigns at its outermost level, magics or not."""
    found: dict[str, ast.AST] = {}
    for statement in _parsed(source) or ():
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = statement
            case ast.Import(names=names):
                found |= {alias.asname or alias.name.partition(".")[0]: alias for alias in names}
            case ast.ImportFrom(module=module, names=names, level=level):
                found |= {alias.asname or alias.name: ast.ImportFrom(module, [alias], level) for alias in names}
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                names = (node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
                found |= dict.fromkeys(names, statement)
    return found


def _defined(source: str) -> frozenset[str]:
    """The functions and classes that a cell defines; nothing if it does not parse."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(name for name, node in bound(source).items() if isinstance(node, kinds))


def _dumped(node: ast.AST) -> str:
    try:
        return ast.dump(node)
    except RecursionError:
        return f"{id(node)}, too deep to be compared"


@lru_cache(maxsize=4096)
def _parsed(source: str) -> tuple[ast.stmt, ...] | None:
    try:
        return tuple(ast.parse(without_magics(source)).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last is the parser's word for too many brackets
        return None
