"""Submissions that the grader is tested with: right in several styles, wrong in one way each.

A file holds only what differs from the solution. The docstring of a wrong one names the mistake, the check that must catch it, and a
part of the message that the student must read.
"""

from __future__ import annotations

import ast
import linecache
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from autograder import course

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One file of the zoo. Of a wrong one: `check`, and what it `says`; of a cheat: the checks that it `cheats`."""

    kind: str
    path: Path
    assignment: str
    check: str = ""
    says: str = ""
    cheats: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.assignment[:2]}-{self.path.stem}"


def cases(kind: str, assignment: str = "*") -> list[Case]:
    """The cases of a kind: right, wrong or cheat."""
    return [_case(path) for path in sorted((HERE / kind).glob(f"{assignment}/*.py"))]


def case(kind: str, assignment: str, name: str) -> Case:
    return _case(HERE / kind / assignment / f"{name}.py")


def _case(path: Path) -> Case:
    text = path.read_text(encoding="utf-8")
    found = [re.search(rf"^{label}: *(.*)$", text, re.MULTILINE) for label in ("Caught by", "Says", "Cheats")]
    check, says, cheats = (match.group(1) if match else "" for match in found)
    return Case(path.parent.parent.name, path, path.parent.name, check, says, tuple(filter(None, cheats.split(", "))))


def filled(assignment: str, student: NotebookNode, case: Case | None = None) -> NotebookNode:
    """The student notebook with the solutions filled in, and with the case's functions where it has some."""
    solutions = {c.id: c.source for c in course.source_notebook(assignment).cells}
    notebook = nbformat.from_dict(student)
    own, rest = _definitions(case.path) if case else ({}, "")
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = "\n".join(line for line in solutions[cell.id].splitlines() if "### " not in line)
            name = ast.parse(cell.source).body[0].name
            cell.source = own.get(name, cell.source)
    if rest.strip():
        notebook.cells.insert(1, new_code_cell(rest, id="helpers"))
    return notebook


def functions(assignment: str, case: Case | None = None) -> dict[str, Any]:
    """The names that such a notebook defines, without running its checks."""
    notebook = filled(assignment, course.source_notebook(assignment), case)
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook.cells:
        if cell.cell_type == "code" and not re.search(r"^(check\(|model,|for )", cell.source, re.MULTILINE):
            place = f"<{case or assignment}: {cell.id}>"
            linecache.cache[place] = (len(cell.source), None, cell.source.splitlines(keepends=True), place)
            exec(compile(cell.source, place, "exec"), names)
    return names


def checks(assignment: str) -> dict[str, list[str]]:
    """{check: the names of the functions that it is called with}, as the exercise calls them."""
    text = "\n".join(cell.source for cell in course.source_notebook(assignment).cells if cell.cell_type == "code")
    return {name: arguments.split(", ") for name, arguments in re.findall(r'^check\("([^"]+)", ([\w, ]+)\)$', text, re.MULTILINE)}


def _definitions(path: Path) -> tuple[dict[str, str], str]:
    """A file's functions and classes by name, and all the rest of it: imports and helpers that no exercise asks for."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    asked = {argument for arguments in checks(path.parent.name).values() for argument in arguments}
    own, rest = {}, []
    for node in tree.body[1:]:  # after the docstring
        segment = ast.get_source_segment(text, node) or ""
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in asked:
            own[node.name] = segment
        else:
            rest.append(segment)
    return own, "\n".join(rest)
