"""One mark as Gradescope's results.json."""

from __future__ import annotations

import json
from typing import Any

from autograder.marks import STATUS, CheckMark, Mark
from autograder.outputs.pages import clean


def results(mark: Mark) -> str:
    """The text of results.json. Students see each check's message; what the grader printed is for the instructor alone.

    Where the grader itself failed there is neither a score nor a test with one: Gradescope then says that the autograder did not run, and
    gives no mark.
    """
    told = "" if mark.status == "graded" else f"{mark.status}: {STATUS[mark.status]}."
    output = "\n".join(filter(None, [told, *(f"{note}." for note in mark.notes)]))
    scored = {"score": mark.score, "tests": [_test(check) for check in mark.checks]} if mark.judged else {}
    return json.dumps(
        {
            **scored,
            "output": clean(output),
            "output_format": "text",
            "visibility": "visible",
            "stdout_visibility": "hidden",
            "execution_time": round(sum(check.seconds for check in mark.checks)),
            "extra_data": {"status": mark.status, "submission": mark.submission, "version": mark.version},
        },
        indent=1,
    )


def _test(check: CheckMark) -> dict[str, Any]:
    lines = [("expected", check.expected), ("got", check.got), ("hint", check.hint), ("your code printed", check.printed)]
    if check.seed and not check.passed:
        lines.append(("seed", str(check.seed)))
    told = [check.message, *(f"{label}: {text}" for label, text in lines if text)]
    return {
        "name": check.name,
        "score": check.points,
        "max_score": check.max_points,
        "status": "passed" if check.passed else "failed",
        "output": clean("\n".join(told)),
        "output_format": "text",
        "visibility": "visible",
    }
