"""The class report: how the points are distributed over each task, and how many students made each named mistake."""

from __future__ import annotations

import base64
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from autograder.marks import RUN, Mark
from autograder.outputs.pages import templates
from autograder.outputs.tables import cell, number, written

COLUMNS = ["assignment", "check", "outcome", "students", "share", "mean_points"]
PASSED, NOT_RUN = "full points", "not run"
NUMBERS = re.compile(r"[-−+]?\d[\d.,]*(?:e[-+]?\d+)?%?|\b(?:nan|inf)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Task:
    """How one graded cell went: the number of students with full points, with a part, and with none."""

    name: str
    worth: float
    full: int
    part: int
    none: int
    mean: float


@dataclass(frozen=True)
class Mistake:
    """One outcome of a check and its students. The message is an example where only numbers differ."""

    check: str
    message: str
    students: int
    mean: float


@dataclass(frozen=True)
class Report:
    """One assignment. `statuses` leaves out "graded"; all the rest leaves out those of whom nothing is known, since the grader failed."""

    assignment: str
    students: int
    worth: float
    mean: float
    median: float
    statuses: dict[str, int]
    tasks: list[Task]
    mistakes: list[Mistake]
    picture: Any


def reports(marks: Sequence[Mark], pictures: bool = True) -> list[Report]:
    """A report for each assignment that has graded cells."""
    names = sorted({mark.assignment for mark in marks if mark.checks})
    return [_report(name, [mark for mark in marks if mark.assignment == name], pictures) for name in names]


def page(marks: Sequence[Mark]) -> str:
    """class.html."""
    return templates().get_template("class.html.j2").render(reports=reports(marks)) + "\n"


def table(marks: Sequence[Mark]) -> str:
    """class.csv: one row for each check and each thing that it said, with the students and their share."""
    rows = []
    for report in reports(marks, pictures=False):
        for task in report.tasks:
            rows.append(
                [report.assignment, task.name, PASSED, str(task.full), number(task.full / report.students), number(task.worth)]
            )
            for mistake in report.mistakes:
                if mistake.check == task.name:
                    share = number(mistake.students / report.students)
                    line = [task.name, mistake.message, str(mistake.students), share, number(mistake.mean)]
                    rows.append([report.assignment, *map(cell, line)])
    return written([COLUMNS, *rows])


def kind(message: str) -> str:
    """The message without its numbers: what two students have in common who made the same mistake."""
    return re.sub(r"…(?:[\s,;]+…)+", "…", NUMBERS.sub("…", message))


def _report(assignment: str, marks: list[Mark], pictures: bool) -> Report:
    statuses = Counter(mark.status for mark in marks if mark.status != "graded")
    marks = [mark for mark in marks if mark.judged]
    scores = [mark.score for mark in marks]
    worth = max((mark.max_score for mark in marks), default=0.0)
    names = list(dict.fromkeys(check.name for mark in marks for check in mark.checks))
    tasks = [_task(name, marks) for name in names]
    return Report(
        assignment, len(marks), worth, fmean(scores or [0.0]), median(scores or [0.0]), dict(sorted(statuses.items())),
        tasks, [mistake for name in names for mistake in _mistakes(name, marks)],
        _drawn(scores, worth, tasks) if pictures and scores else None,
    )  # fmt: skip


def _task(name: str, marks: list[Mark]) -> Task:
    own = [check for mark in marks for check in mark.checks if check.name == name]
    full = sum(check.passed for check in own)
    part = sum(0 < check.points < check.max_points for check in own)
    return Task(name, own[0].max_points, full, part, len(own) - full - part, fmean(check.points for check in own))


def _mistakes(name: str, marks: list[Mark]) -> list[Mistake]:
    """What the check said, by the number of students: a student counts once, whatever the numbers in the message are."""
    said: dict[str, list[tuple[str, float]]] = {}
    for mark in marks:
        for check in mark.checks:
            if check.name == name and not check.passed:
                message = check.message if mark.status in RUN else f"{NOT_RUN}: {mark.status}"
                said.setdefault(kind(message), []).append((message, check.points))
    found = []
    for common, cases in said.items():
        messages = {message for message, _ in cases}
        found.append(Mistake(name, common if len(messages) > 1 else cases[0][0], len(cases), fmean(p for _, p in cases)))
    return sorted(found, key=lambda mistake: (-mistake.students, mistake.message))


def _drawn(scores: list[float], worth: float, tasks: list[Task]) -> Any:
    """The scores' histogram, and each task's shares, as PNG in base64; or {"error": why not}."""
    from matplotlib.figure import Figure

    from autograder.checks.figures import RIGHT, THIRD, YOURS

    try:
        figure = Figure(figsize=(9, 0.9 + max(2.0, 0.4 * len(tasks))), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(2, 3))
        left.hist(scores, bins=[worth * i / 10 for i in range(11)], color=YOURS, rwidth=0.92)
        left.yaxis.get_major_locator().set_params(integer=True)
        left.set(xlabel=f"points of {number(worth)}", ylabel="students", title="Scores")
        offset = [0] * len(tasks)
        for label, colour in (("full", YOURS), ("part", THIRD), ("none", RIGHT)):
            counts = [getattr(task, label) for task in tasks]
            right.barh([task.name for task in tasks], counts, 0.7, left=offset, color=colour, label=label)
            offset = [a + b for a, b in zip(offset, counts)]
        right.invert_yaxis()
        right.set(xlabel="students", title="Points by task")
        right.legend(frameon=False, fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=144, metadata={"Software": None})
    except Exception as error:  # a report without a picture is still a report
        return {"error": f"{type(error).__name__}: {error}"}
    return base64.b64encode(png.getvalue()).decode()
