"""The front end in a notebook: prints one line, draws the picture, or raises an exception that is a few lines long."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

from autograder.checks import core
from autograder.inside.shell import COURSE, not_run, not_there, written

SEED = "SPECDEC_GRADING_SEED"  # set by the grader: hidden checks then use fixtures and samples of this submission's own
VISIBLE, HIDDEN = 0, 1
_warned: set[str] = set()


class CheckFailed(AssertionError):
    """A check failed. Prints as its name, the named mistake, what was expected, what came, and a hint; never as a traceback."""

    def __init__(self, name: str, result: core.Result, seed: int = VISIBLE):
        super().__init__(f"{name}: {result.message}")
        self.name, self.result, self.seed = name, result, seed

    def lines(self) -> list[str]:
        result = self.result
        body = [("expected", result.expected), ("got", result.got), ("hint", result.hint)]
        if self.seed != VISIBLE:
            body.append(("seed", f"{self.seed}: other fixtures than the notebook's, by which your work is graded"))
        head = _wrapped(f"✗ {self.name}: {result.message}", "    ")
        return head + [line for label, text in body if text for line in _labelled(label, text)]

    def _render_traceback_(self) -> list[str]:
        return self.lines()


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, width=100, subsequent_indent=indent)


def _labelled(label: str, text: str) -> list[str]:
    first, *rest = text.splitlines()
    lines = _wrapped(f"  {label:<9} {first}", " " * 12)
    return lines + [piece for line in rest for piece in _wrapped(" " * 12 + line, " " * 12)]


def check(name: str, *functions: Any, hidden: bool = False) -> None:
    """Checks your functions: `check("02.residual_dist", residual_dist)`. Run it as often as you like.

    Args:
        name: which check, as written in the exercise.
        functions: your functions or classes, in the order that the exercise shows.
        hidden: other fixtures than the visible ones; graders use it.

    Raises:
        CheckFailed: if the check does not pass; its text names the mistake.
    """
    _warn_of_what_grading_leaves_out()
    seed = int(os.environ.get(SEED, HIDDEN)) if hidden else VISIBLE
    result = core.run(name, *functions, seed=seed)
    if result.printed:
        print("Your code printed:\n" + textwrap.indent(result.printed, "  | "))
    if result.picture and not (hidden and result.passed):
        _show(result.picture)
    if not result.passed:
        raise CheckFailed(name, result, seed)
    if not hidden:
        print("\n".join(_wrapped(f"✓ {name}: {result.message}", "    ")))


def _warn_of_what_grading_leaves_out() -> None:
    """Prints a sentence, once, for what a cell of this notebook has done that grading will not do."""
    ipython = sys.modules.get("IPython")  # not imported for this
    shell = ipython and ipython.get_ipython()
    if not shell:
        return
    cells = shell.history_manager.input_hist_raw
    missing = _imported_from(Path.cwd()) - {*COURSE, *map(written, cells)}
    for sentence in (*(s for cell in cells for s in not_run(cell)), *map(not_there, sorted(missing))):
        if sentence not in _warned:
            _warned.add(sentence)
            print("\n".join(_wrapped(f"note: {sentence}", "    ")))


def _imported_from(folder: Path) -> set[str]:
    """The names of modules and packages that lie in a folder."""
    found = set()
    for name, module in sys.modules.copy().items():
        place = getattr(module, "__file__", None)
        if "." not in name and isinstance(place, str):
            file = Path(place)
            found |= {name} if folder == (file.parent.parent if file.stem == "__init__" else file.parent) else set()
    return found


def _show(picture: dict[str, Any]) -> None:
    """Displays a picture in a notebook; does nothing outside one."""
    from IPython import get_ipython
    from IPython.display import Image, display

    if get_ipython() is None:
        return
    from autograder.checks.figures import draw  # matplotlib takes a second: only when there is something to draw

    png = io.BytesIO()
    draw(**picture).savefig(png, format="png", dpi=200)
    display(Image(png.getvalue(), width=640, alt=f"Picture of the check: {picture['kind']}"))
