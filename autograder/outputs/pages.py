"""The feedback page of one submission, and its notebook as nbgrader shows it: both from the mark, with the same pictures."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import Environment, FileSystemLoader
from nbformat import NotebookNode
from nbformat.v4 import new_output

from autograder.checks import core, notebook
from autograder.marks import STATUS, CheckMark, Mark, to_json
from autograder.outputs.tables import number

TEMPLATES = Path(__file__).parent / "templates"
SHOWN = 4000  # characters of any one text; the checks keep theirs far shorter
HEAD = 400  # characters within which a page has its stamp


@cache
def templates() -> Environment:
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(number=number, clean=clean)
    return environment


def clean(text: str) -> str:
    """Without control characters, which a page cannot show, and no longer than a page should be."""
    visible = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", "\ufffd", text)
    return visible if len(visible) <= SHOWN else visible[:SHOWN] + " …"


def stamp(mark: Mark, release: NotebookNode | None = None) -> str:
    """Changes when the page would: with the mark, the release or the templates. Times do not count."""
    timeless = replace(mark, checks=tuple(replace(check, seconds=0.0) for check in mark.checks))
    parts = [to_json(timeless), *(path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.iterdir()))]
    parts.append(nbformat.writes(release) if release else "")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_fresh(page: Path, stamp: str) -> bool:
    """Whether the page was made with this stamp."""
    try:
        with page.open(encoding="utf-8") as file:
            return f'<meta name="stamp" content="{stamp}">' in file.read(HEAD)
    except (OSError, UnicodeDecodeError):
        return False


def pictures(mark: Mark) -> dict[str, Any]:
    """{grade_id: PNG in base64, or {"error": why there is none}} of the checks that cost points. A right answer needs no picture,
    and drawing takes longer than all the rest of a page."""
    return {check.grade_id: _drawn(check.picture) for check in mark.checks if check.picture and not check.passed}


def _drawn(picture: dict[str, Any]) -> Any:
    from autograder.checks.figures import draw  # matplotlib takes a second: only when there is something to draw

    png = io.BytesIO()
    try:
        draw(**picture).savefig(png, format="png", dpi=144, metadata={"Software": None})
    except Exception as error:  # the data come from a student's numbers, and a page without a picture is still a page
        return {"error": f"{type(error).__name__}: {error}"}
    return base64.b64encode(png.getvalue()).decode()


def page(mark: Mark, drawn: dict[str, Any], release: NotebookNode | None = None, stamp: str = "") -> str:
    """The page, complete in itself: no scripts, nothing loaded from elsewhere, everything from the student escaped."""
    calls = {cell.metadata.nbgrader.grade_id: _again(cell.source) for cell in _graded(release)} if release else {}
    template = templates().get_template("feedback.html.j2")
    return template.render(mark=mark, meaning=STATUS[mark.status], pictures=drawn, calls=calls, stamp=stamp) + "\n"


def _again(source: str) -> str:
    """The call of a check cell, with the graders' fixtures."""
    call = next((line for line in source.splitlines() if re.match(r"check\(.+\)$", line)), "")
    return call[:-1] + ", hidden=True)" if call else ""


def autograded(mark: Mark, drawn: dict[str, Any], rebuilt: NotebookNode) -> NotebookNode:
    """The rebuilt notebook with what each check found as its cell's outputs, as if it had been run; nothing is."""
    shown = nbformat.from_dict(rebuilt)
    checks = {check.grade_id: check for check in mark.checks}
    for cell in _graded(shown):
        if cell.metadata.nbgrader.grade_id in checks:
            check = checks[cell.metadata.nbgrader.grade_id]
            cell.outputs = _outputs(check, drawn.get(check.grade_id))
    return shown


def _outputs(check: CheckMark, drawn: Any) -> list[NotebookNode]:
    outputs = []
    if check.printed:
        outputs.append(new_output("stream", text=clean(f"Your code printed:\n{check.printed}\n")))
    if isinstance(drawn, str):
        alt = f"Picture of the check {check.name}"
        outputs.append(new_output("display_data", {"image/png": drawn, "text/plain": alt}))
    elif drawn:
        outputs.append(new_output("stream", text=clean(f"There is no picture: {drawn['error']}\n")))
    if check.passed:
        return [*outputs, new_output("stream", text=clean(f"✓ {check.name}: {check.message}\n"))]
    told = [clean(text) for text in (check.message, check.expected, check.got, check.hint)]
    failed = notebook.CheckFailed(check.name, core.Result(False, *told), check.seed)
    return [*outputs, new_output("error", ename="CheckFailed", evalue=str(failed), traceback=failed.lines())]


def _graded(release: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in release.cells if cell.metadata.get("nbgrader", {}).get("grade")]
