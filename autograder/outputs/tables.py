"""grades.csv, and a file that Canvas's gradebook imports. No times in them: the same marks give the same bytes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence

from autograder.marks import Mark

GRADES = ["student", "assignment", "score", "max_score", "status", "message"]
CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
POSSIBLE = "    Points Possible"  # as Canvas writes it


def number(value: float) -> str:
    """At most four decimals, and no trailing zeros."""
    return f"{round(value, 4):.10g}"


def cell(text: str) -> str:
    """One line that a spreadsheet does not take for a formula, whatever a student called a folder."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line


def written(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def grades(marks: Sequence[Mark]) -> str:
    """grades.csv: one row for each submission, sorted; without a score where the grader itself failed."""
    rows = [
        [
            cell(m.student),
            cell(m.assignment),
            number(m.score) if m.judged else "",
            number(m.max_score),
            m.status,
            cell(m.message),
        ]
        for m in sorted(marks, key=lambda mark: (mark.student, mark.assignment))
    ]
    return written([GRADES, *rows])


def canvas(marks: Sequence[Mark], ids: Mapping[str, str] | None = None, roster: str = "") -> str:
    """The marks as Canvas's gradebook imports them: one row for each student, one column for each assignment. The cell stays empty,
    which Canvas takes as no change, where the grader itself failed.

    ids: {student: Canvas's number of the user}, as in the file names of a Canvas download. Canvas goes by the number, then by
        SIS ids; a student without a number has the name as login.
    roster: an export of the same gradebook. Its students, ids and assignment titles are kept, and rows without marks stay empty,
        which Canvas takes as no change. A column belongs to an assignment if its title holds the slug.
    """
    ids = ids or {}
    by_student: dict[str, dict[str, Mark]] = {}
    worth: dict[str, float] = {}
    for mark in marks:
        if mark.checks:  # otherwise the assignment is none of the course's
            by_student.setdefault(mark.student, {})[mark.assignment] = mark
            worth[mark.assignment] = max(worth.get(mark.assignment, 0.0), mark.max_score)
    titles = {assignment: assignment for assignment in sorted(worth)}
    known: list[dict[str, str]] = []
    if roster:
        head = roster.partition("\n")[0]
        separator = ";" if head.count(";") > head.count(",") else ","  # Canvas writes what the language's spreadsheets read
        table = csv.DictReader(io.StringIO(roster.removeprefix("\ufeff")), delimiter=separator)
        titles = {slug: next((t for t in table.fieldnames or [] if slug in t), slug) for slug in titles}
        known = [row for row in table if (row.get("Student") or "").strip() and "Points Possible" not in (row["Student"] or "")]
    rows, left = [], dict(by_student)
    for person in known:
        student = next((s for s in left if _is(person, s, ids)), None)
        rows.append([*(person.get(column) or "" for column in CANVAS), *_scores(left.pop(student or "", {}), titles)])
    for student in sorted(left):
        user = ids.get(student, "")
        rows.append([student, user, "", "" if user else student, "", *_scores(left[student], titles)])
    possible = [POSSIBLE, "", "", "", "", *(number(worth[slug]) for slug in titles)]
    return written([[*CANVAS, *titles.values()], possible, *rows])


def _is(person: Mapping[str, str], student: str, ids: Mapping[str, str]) -> bool:
    """Whether a row of the roster is this student: by number, by a SIS id, or by name."""
    if ids.get(student):
        return person.get("ID") == ids[student]
    wanted = _letters(student)
    return any(wanted == _letters(person.get(column) or "") for column in ("SIS Login ID", "SIS User ID", "ID", "Student"))


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text).casefold()


def _scores(own: Mapping[str, Mark], titles: Mapping[str, str]) -> list[str]:
    return [number(own[slug].score) if slug in own and own[slug].judged else "" for slug in titles]
