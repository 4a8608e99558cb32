"""The nbgrader course: exercise sources become notebooks, and a course folder is made from them wherever one is needed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbformat import NotebookNode

if TYPE_CHECKING:  # jupytext and nbgrader take longer to import than most grading runs wait for their first mark
    from nbgrader.apps import NbGraderAPI

ROOT = Path(__file__).resolve().parents[1]
SOLUTIONS = ROOT / "solutions"
RELEASED = ROOT / "autograder" / "released"  # the student notebooks once more: those in chapters/ are there to be worked in
MADE_FROM = RELEASED / "made_from.json"  # {assignment: what `source_digest` was}
SETTINGS = Path(__file__).parent / "nbgrader_config.py"
NOTEBOOK = "exercise"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# For a new gradebook nbgrader starts the program `alembic`, which lies beside this Python and need not be on the path.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def assignments() -> list[str]:
    """The slugs of all exercises, `NN-slug`. A copy for students has no sources, and the notebooks made from them."""
    if SOLUTIONS.is_dir():
        return sorted(path.parent.name for path in SOLUTIONS.glob("*/exercise.py"))
    return sorted(path.stem for path in RELEASED.glob("*.ipynb"))


@cache
def released(assignment: str) -> str:
    """The text of the student notebook, whatever stands in chapters/: the one in `RELEASED` or, where its source has changed since that
    was made, one made anew."""
    made_from = json.loads(MADE_FROM.read_text(encoding="utf-8")).get(assignment)
    if (SOLUTIONS / assignment).is_dir() and source_digest(assignment) != made_from:
        with tempfile.TemporaryDirectory() as folder:
            return text(make_course(Path(folder), [assignment], gradebook=False)[assignment])
    return (RELEASED / f"{assignment}.ipynb").read_text(encoding="utf-8")


def source_digest(assignment: str) -> str:
    """Changes with the source of an exercise, and with nbgrader's settings."""
    return hashlib.sha256((SOLUTIONS / assignment / "exercise.py").read_bytes() + SETTINGS.read_bytes()).hexdigest()


def source_notebook(assignment: str) -> NotebookNode:
    """The exercise with its solutions and hidden checks, as nbgrader wants it."""
    import jupytext

    notebook = jupytext.read(SOLUTIONS / assignment / "exercise.py")
    return canonical(notebook)


def canonical(notebook: NotebookNode) -> NotebookNode:
    """The same notebook with nothing in it that changes from run to run: fixed cell ids, no outputs, fixed metadata."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell["id"] = re.sub(r"\W|_", "-", cell.metadata.get("nbgrader", {}).get("grade_id", f"cell-{number:02d}"))
        cell.metadata.pop("lines_to_next_cell", None)  # jupytext's
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def text(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook) + "\n"


def api(course: Path, **settings: dict[str, Any]) -> NbGraderAPI:
    """nbgrader's API on a course folder, under `nbgrader_config.py` and further settings, Class={"trait": value}."""
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config, PyFileConfigLoader

    config = PyFileConfigLoader(SETTINGS.name, path=str(SETTINGS.parent)).load_config()
    config.merge(Config({"CourseDirectory": {"root": str(course)}, "Application": {"log_level": "WARN"}}))
    config.merge(Config(settings))
    return NbGraderAPI(config=config)


def _without_gradebook() -> dict[str, Any]:
    """Settings: a gradebook takes seconds to make, and the notebooks do not need it."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import SaveCells

    steps = [step for step in GenerateAssignment().preprocessors if step is not SaveCells]
    return {"GenerateAssignment": {"no_database": True, "preprocessors": steps}}


def make_course(
    course: Path, wanted: list[str] | None = None, gradebook: bool = True, db_url: str = ""
) -> dict[str, NotebookNode]:
    """Writes source/, release/ and a gradebook into `course`. Returns the student notebook of each assignment.

    db_url: the database of the gradebook, if it is not to be `gradebook.db` in the course's folder.

    Raises:
        RuntimeError: with nbgrader's log, if it cannot make a release.
    """
    made = {}
    for assignment in wanted or assignments():
        source = course / "source" / assignment / f"{NOTEBOOK}.ipynb"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text(source_notebook(assignment)), encoding="utf-8")
        elsewhere = {"CourseDirectory": {"db_url": db_url}} if db_url else {}
        generator = api(course, **(elsewhere if gradebook else _without_gradebook()))
        outcome = generator.generate_assignment(assignment, force=True, create=True)
        if not outcome["success"]:
            raise RuntimeError(f"nbgrader could not make the release of {assignment}:\n{outcome['log'] or outcome.get('error')}")
        release = course / "release" / assignment / f"{NOTEBOOK}.ipynb"
        made[assignment] = canonical(nbformat.read(release, as_version=4))
        release.write_text(text(made[assignment]), encoding="utf-8")
    return made
