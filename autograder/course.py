"""The nbgrader course: exercise sources become notebooks, and a course folder is made from them wherever one is needed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode
from nbgrader.apps import NbGraderAPI
from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import SaveCells
from traitlets.config import Config, PyFileConfigLoader

ROOT = Path(__file__).resolve().parents[1]
SOLUTIONS = ROOT / "solutions"
NOTEBOOK = "exercise"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# A gradebook takes seconds to make, and the notebooks do not need it.
WITHOUT_GRADEBOOK = {
    "GenerateAssignment": {
        "no_database": True,
        "preprocessors": [p for p in GenerateAssignment().preprocessors if p is not SaveCells],
    }
}

# For a new gradebook nbgrader starts the program `alembic`, which lies beside this Python and need not be on the path.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def assignments() -> list[str]:
    """The slugs of all exercises, `NN-slug`. A copy for students has no sources, and the notebooks made from them."""
    found = SOLUTIONS.glob("*/exercise.py") if SOLUTIONS.is_dir() else (ROOT / "chapters").glob(f"*/{NOTEBOOK}.ipynb")
    return sorted(path.parent.name for path in found)


def source_notebook(assignment: str) -> NotebookNode:
    """The exercise with its solutions and hidden checks, as nbgrader wants it."""
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


def api(course: Path, **settings: Config) -> NbGraderAPI:
    """nbgrader's API on a course folder, under `nbgrader_config.py` and further settings, Class={"trait": value}."""
    config = PyFileConfigLoader("nbgrader_config.py", path=str(Path(__file__).parent)).load_config()
    config.merge(Config({"CourseDirectory": {"root": str(course)}, "Application": {"log_level": "WARN"}}))
    config.merge(Config(settings))
    return NbGraderAPI(config=config)


def make_course(
    course: Path, wanted: list[str] | None = None, gradebook: bool = True, db_url: str = ""
) -> dict[str, NotebookNode]:
    """Writes source/, release/ and a gradebook into `course`. Returns the student notebook of each assignment.

    db_url: the database of the gradebook, if it is not to be `gradebook.db` in the course's folder.

    Raises:
        RuntimeError: with nbgrader's log, if it cannot make a release.
    """
    released = {}
    for assignment in wanted or assignments():
        source = course / "source" / assignment / f"{NOTEBOOK}.ipynb"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text(source_notebook(assignment)), encoding="utf-8")
        elsewhere = {"CourseDirectory": {"db_url": db_url}} if db_url else {}
        generator = api(course, **(elsewhere if gradebook else WITHOUT_GRADEBOOK))
        outcome = generator.generate_assignment(assignment, force=True, create=True)
        if not outcome["success"]:
            raise RuntimeError(f"nbgrader could not make the release of {assignment}:\n{outcome['log'] or outcome.get('error')}")
        release = course / "release" / assignment / f"{NOTEBOOK}.ipynb"
        released[assignment] = canonical(nbformat.read(release, as_version=4))
        release.write_text(text(released[assignment]), encoding="utf-8")
    return released
