"""Grades one submission in a course folder of its own: `python -m autograder.worker COURSE ASSIGNMENT`. The runner starts it."""

from __future__ import annotations

import sys
from pathlib import Path

STUDENT = "student"  # nbgrader forms paths and patterns from the id; the runner knows whose it is


def main(course: str, assignment: str) -> int:
    from autograder.course import api as course_api

    api = course_api(Path(course))
    for step in (api.autograde, api.generate_feedback):
        outcome = step(assignment, STUDENT, force=True)
        if not outcome["success"]:
            print(outcome.get("error") or "", outcome.get("log") or "", sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
