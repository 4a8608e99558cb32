"""What a grading run leaves behind: grades.csv, nbgrader's gradebook, and a feedback page for every row."""

from __future__ import annotations

import csv
import html
import os
import warnings
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.api import Gradebook
from sqlalchemy.exc import SAWarning

from autograder.course import NOTEBOOK

STATUS = {
    "graded": "every cell was run",
    "timeout": "some code did not end in time; what passed has its points",
    "crashed": "some code ended the Python process; what passed before has its points",
    "unreadable": "the file is no notebook",
    "missing": "the assignment's folder has no notebook that could be meant",
    "unknown": "the folder is called like no assignment",
    "misplaced": "a file lies where a folder should be",
    "empty": "the student's folder is empty",
    "error": "the grader itself failed: look at the message, nothing is the student's fault",
}


@dataclass(frozen=True)
class Row:
    """One line of grades.csv. `cells` has the points of each graded cell, for the gradebook."""

    student: str
    assignment: str
    score: float
    max_score: float
    status: str
    message: str
    cells: dict[str, float] = field(default_factory=dict)


COLUMNS = [f.name for f in fields(Row) if f.name != "cells"]


def write_grades(rows: list[Row], path: Path) -> None:
    """Sorted, and whole or not at all: written beside the file, then moved over it."""
    beside = path.with_suffix(".partial")
    with beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(_printed(row) for row in sorted(rows, key=lambda row: (row.student, row.assignment)))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _printed(row: Row) -> dict[str, str]:
    numbers = {name: f"{getattr(row, name):g}" for name in ("score", "max_score")}
    return {**{k: " ".join(str(v).split()) for k, v in asdict(row).items()}, **numbers}


def write_gradebook(rows: list[Row], database: Path) -> None:
    """The rows' points into nbgrader's gradebook. Only this process writes it, one row after the other."""
    with warnings.catch_warnings(), Gradebook(f"sqlite:///{database}", "specdec") as gradebook:
        warnings.simplefilter("ignore", SAWarning)  # nbgrader builds a submission before it adds it to the session
        known = {assignment.name for assignment in gradebook.assignments}
        for row in rows:
            if row.assignment not in known:
                continue
            gradebook.update_or_create_student(row.student)
            gradebook.update_or_create_submission(row.assignment, row.student)
            for grade in gradebook.find_submission_notebook(NOTEBOOK, row.assignment, row.student).grades:
                grade.auto_score = row.cells.get(grade.name, 0.0)
                grade.needs_manual_grade = False
            gradebook.db.commit()


def max_scores(database: Path) -> dict[str, float]:
    with Gradebook(f"sqlite:///{database}", "specdec") as gradebook:
        return {assignment.name: assignment.max_score for assignment in gradebook.assignments}


def cell_scores(database: Path, assignment: str, student: str) -> dict[str, float]:
    """The points that nbgrader gave each graded cell."""
    with Gradebook(f"sqlite:///{database}", "specdec") as gradebook:
        grades = gradebook.find_submission_notebook(NOTEBOOK, assignment, student).grades
        return {grade.name: float(grade.auto_score or 0) for grade in grades}


def failures(autograded: NotebookNode) -> list[tuple[str, str]]:
    """(kind of error, message) of every graded cell that failed."""
    found = []
    for cell in autograded.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            for output in cell.get("outputs", []):
                if output.output_type == "error":
                    text = output.evalue if output.ename == "CheckFailed" else f"{output.ename}: {output.evalue}"
                    found.append((output.ename, text))
                    break
    return found


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:3em auto;padding:0 1em;color:#222}}
code{{background:#f0f0f4;padding:.1em .3em}} .status{{color:#a03030}}</style></head>
<body><h1>{title}</h1><p>Student: <b>{student}</b>. Score: <b>{score:g} of {max_score:g}</b>.</p>
<p class="status"><b>{status}</b>: {meaning}.</p><p>{message}</p></body></html>
"""


def page(row: Row) -> str:
    """A feedback page for a row without an executed notebook."""
    text = {name: html.escape(str(getattr(row, name))) for name in ("student", "status", "message")}
    title = html.escape(row.assignment or "No assignment")
    return PAGE.format(title=title, score=row.score, max_score=row.max_score, meaning=html.escape(STATUS[row.status]), **text)
