"""Marks into nbgrader's gradebook, in SQLite or any other database that a `db_url` names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from nbgrader.api import Assignment, Comment, Grade, Gradebook, Student, SubmittedAssignment, SubmittedNotebook
from nbgrader.utils import parse_utc
from sqlalchemy import URL
from sqlalchemy.exc import SAWarning
from sqlalchemy.orm import Session, selectinload

from autograder.course import NOTEBOOK
from autograder.marks import Mark

COURSE = "specdec"


def write(
    marks: Sequence[Mark],
    db_url: str | URL,
    folders: Mapping[str, str],
    timestamps: Mapping[tuple[str, str], str] | None = None,
) -> None:
    """Every mark of an assignment that the gradebook knows, in one transaction. Writing the same marks twice changes nothing.

    A cell's points are its `auto_score`. What a person entered (a manual score, extra credit, a comment) is left as it is, and
    counts more than ours, as everywhere in nbgrader.

    folders: {student: the id in the gradebook}.
    timestamps: {(student, assignment): when it was handed in}, as nbgrader writes times.
    """
    with warnings.catch_warnings(), Gradebook(db_url, COURSE) as gradebook:
        warnings.simplefilter("ignore", SAWarning)  # nbgrader's own declarations
        session = gradebook.db
        for assignment in gradebook.assignments:
            own = {folders[mark.student]: mark for mark in marks if mark.assignment == assignment.name}
            _add_students(session, own)
            submitted = _submissions(session, assignment)
            for student, mark in sorted(own.items()):
                submission = submitted.get(student) or _new(session, assignment, student)
                when = moment((timestamps or {}).get((mark.student, mark.assignment), ""))
                if when:
                    submission.timestamp = when
                _grade(submission, mark)
        session.commit()


def moment(timestamp: str) -> datetime | None:
    """A time as nbgrader reads it, in UTC; None for what is no time. The text may come from a student."""
    try:
        return parse_utc(timestamp) if timestamp else None
    except (ValueError, OverflowError):
        return None


def _add_students(session: Session, students: Iterable[str]) -> None:
    there = {student for (student,) in session.query(Student.id)}
    session.add_all(Student(id=student) for student in sorted(set(students) - there))
    session.flush()


def _submissions(session: Session, assignment: Assignment) -> dict[str, SubmittedAssignment]:
    """All submissions of an assignment with all their grades: a few queries, not one for each cell."""
    grades = selectinload(SubmittedAssignment.notebooks).selectinload(SubmittedNotebook.grades)
    query = session.query(SubmittedAssignment).filter_by(assignment_id=assignment.id).options(grades.selectinload(Grade.cell))
    return {submission.student_id: submission for submission in query}


def _new(session: Session, assignment: Assignment, student: str) -> SubmittedAssignment:
    """As `Gradebook.add_submission` makes one, which commits after each."""
    notebooks = [
        SubmittedNotebook(
            notebook=notebook,
            grades=[Grade(cell=cell) for cell in (*notebook.grade_cells, *notebook.task_cells)],
            comments=[Comment(cell=cell) for cell in (*notebook.solution_cells, *notebook.task_cells)],
        )
        for notebook in assignment.notebooks
    ]
    submission = SubmittedAssignment(assignment_id=assignment.id, student_id=student, notebooks=notebooks)
    session.add(submission)
    return submission


def _grade(submission: SubmittedAssignment, mark: Mark) -> None:
    """Where the grader itself failed, the points of an earlier run stay, and nbgrader asks a person to look."""
    points = {check.grade_id: check.points for check in mark.checks}
    for notebook in submission.notebooks:
        if notebook.name == NOTEBOOK:
            for grade in notebook.grades:
                if mark.judged:
                    grade.auto_score = points.get(grade.cell.name, 0.0)
                grade.needs_manual_grade = not mark.judged
