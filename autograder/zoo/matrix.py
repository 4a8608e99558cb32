"""Every named mistake of a chapter in every legitimate style: a matrix, each cell of which must lose the marks of its check.

A chapter's module `matrices/NN_slug.py` has a MATRIX. A style is a function of parts that gives the functions of the exercise; a mistake
replaces some parts. So a cell is composed, and judged in this process by the check itself, without a sandbox.

    ✓ caught, and named      ~ caught, without its name      ✗ missed      · cannot be composed
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from autograder import zoo
from autograder.checks import core

HERE = Path(__file__).parent / "matrices"
NAMED, CAUGHT, MISSED, NONE = "✓", "~", "✗", "·"
RIGHT = "the right solution"
SEEDS = 3  # few, so that a check can remember what its catalogue does


@dataclass(frozen=True, eq=False)
class Mistake:
    """A row. check: which one must take its marks; says: a part of its message, empty where no name can be asked for; parts: what
    replaces the style's own; styles: where it can be composed, all if empty; unnamed: the styles in which it has no name, and why."""

    name: str
    check: str
    says: str
    parts: dict[str, Any]
    styles: tuple[str, ...] = ()
    unnamed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Matrix:
    """styles: {name: style(**parts) → {what the exercise asks for: function or class}}. Without parts a style is right."""

    assignment: str
    styles: dict[str, Callable[..., dict[str, Any]]]
    mistakes: tuple[Mistake, ...]

    def cells(self) -> Iterator[tuple[Mistake | None, str]]:
        """(mistake, style), the right solution, None, first."""
        for mistake in (None, *self.mistakes):
            for style in self.styles:
                if mistake is None or not mistake.styles or style in mistake.styles:
                    yield mistake, style


def matrix(assignment: str) -> Matrix:
    """The matrix of `NN-slug`, or of `NN`."""
    (path,) = HERE.glob(f"{assignment[:2]}_*.py")
    return importlib.import_module(f"autograder.zoo.matrices.{path.stem}").MATRIX


def matrices() -> list[Matrix]:
    return [matrix(path.stem) for path in sorted(HERE.glob("[0-9][0-9]_*.py"))]


_checks = cache(zoo.checks)


def run(matrix: Matrix, mistake: Mistake | None, style: str) -> list[core.Result]:
    """Of the mistake's check; of the right solution all of the chapter's. Cells differ in their seeds."""
    functions = matrix.styles[style](**(mistake.parts if mistake else {}))
    asked = _checks(matrix.assignment)
    seed = zlib.crc32(f"{mistake.name if mistake else RIGHT} {style}".encode()) % SEEDS
    return [core.run(name, *(functions[f] for f in asked[name]), seed=seed) for name in ([mistake.check] if mistake else asked)]


def verdict(matrix: Matrix, mistake: Mistake | None, style: str) -> tuple[str, str]:
    """(one of the four signs, what is wrong with this cell: nothing if all is as it should be)."""
    results = run(matrix, mistake, style)
    if mistake is None:
        lost = "; ".join(result.message for result in results if not result.passed)
        return (MISSED, lost) if lost else (NAMED, "")
    (result,) = results
    if result.passed or result.credit == 1:
        return MISSED, f"{mistake.check} passes"
    if mistake.says in result.message:
        return NAMED, ""
    return CAUGHT, "" if style in mistake.unnamed else f"{mistake.check} says {result.message!r}, not {mistake.says!r}"


def table(matrix: Matrix, console: Console) -> int:
    """Judges every cell, prints a row for each mistake, and a line for each cell that is wrong. Returns how many are."""
    cells, signs, faults = list(matrix.cells()), {}, []
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), console=console) as bar:
        for mistake, style in bar.track(cells, description=f"Judging the matrix of {matrix.assignment}"):
            signs[mistake, style], fault = verdict(matrix, mistake, style)
            if fault:
                faults.append(f"{mistake.name if mistake else RIGHT}, {style}: {fault}")
    numbers = [str(i) for i, _ in enumerate(matrix.styles, 1)]
    shown = Table("check", "mistake", *numbers, title=f"{matrix.assignment}: {NAMED} caught and named, {CAUGHT} caught, {MISSED} missed",
                  caption=", ".join(map(" ".join, zip(numbers, matrix.styles))), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))  # fmt: skip
    check = ""
    for mistake in (None, *matrix.mistakes):
        row = [signs.get((mistake, style), NONE) for style in matrix.styles]
        colour = "red" if MISSED in row else None if CAUGHT in row else "green"
        before, check = check, mistake.check[3:] if mistake else "all"
        shown.add_row("" if check == before else check, mistake.name if mistake else RIGHT, *row, style=colour)
    console.print(shown)
    for fault in faults:
        console.print(f"wrong: {fault}", style="red", markup=False)
    return len(faults)
