"""Gradescope: the zip that an instructor uploads, and what runs in it for each submission.

The zip holds the checks and the student notebook, but no solutions: a right answer that is not there cannot be read.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autograder import course, files, keys
from autograder.intake.submission import Submission, in_folder
from autograder.marks import Mark
from autograder.outputs import gradescope

HERE = Path(__file__).parent
SCRIPTS = ("setup.sh", "run_autograder")
PROJECT = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "LICENSE-text")
FOLDERS = ("specdec", "autograder")
LEFT_OUT = ("__pycache__", "zoo", "weights")  # the zoo has right solutions in it; no check needs trained heads
SECRET = "secret"  # beside pyproject.toml in the zip; only root can read it there
EPOCH = (1980, 1, 1, 0, 0, 0)  # every file's time, so that the same project makes the same zip


# -- the zip -----------------------------------------------------------------------------------------------------------


def build(assignment: str, path: Path, secret: str = "", pip_args: str = "") -> None:
    """Writes autograder.zip for one assignment.

    secret: what the fixtures' seeds are made from; without one, something random.
    pip_args: more arguments for pip in Gradescope's image.

    Raises:
        ValueError: if there is no such assignment.
    """
    if assignment not in course.assignments():
        raise ValueError(f"no assignment is called {assignment}; there are {', '.join(course.assignments())}")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        environment = Environment(loader=FileSystemLoader(HERE), undefined=StrictUndefined, keep_trailing_newline=True)
        for name in SCRIPTS:
            values = {"assignment": shlex.quote(assignment), "pip_args": shlex.join(shlex.split(pip_args))}
            _add(archive, name, environment.get_template(f"{name}.j2").render(values).encode(), 0o755)
        for file in _project():
            _add(archive, file.relative_to(course.ROOT).as_posix(), file.read_bytes(), 0o644)
        _add(archive, SECRET, (secret or keys.new()).encode(), 0o600)
    files.write(path, buffer.getvalue())


def _project() -> Iterator[Path]:
    yield from (course.ROOT / name for name in PROJECT)
    for folder in FOLDERS:
        for path in sorted((course.ROOT / folder).rglob("*")):
            if path.is_file() and not set(LEFT_OUT) & set(path.relative_to(course.ROOT).parts):
                yield path


def _add(archive: zipfile.ZipFile, name: str, content: bytes, mode: int) -> None:
    member = zipfile.ZipInfo(name, EPOCH)
    member.external_attr = (0o100000 | mode) << 16
    archive.writestr(member, content, zipfile.ZIP_DEFLATED)


# -- in Gradescope's container -----------------------------------------------------------------------------------------


def run(assignment: str, folder: Path, results: Path) -> Mark:
    """Grades the submission in a folder and writes results.json, whatever happens."""
    submission = _found(assignment, folder)
    try:
        mark = grade(submission)
    except Exception:
        traceback.print_exc()  # Gradescope shows it to the instructor alone
        mark = Mark(submission.student, assignment, "error", ())
    files.write(results, gradescope.results(mark))
    return mark


def grade(submission: Submission) -> Mark:
    """The mark of one submission. Gradescope's containers have no user namespaces, so there is no bubblewrap in most: the container
    then protects everything else, and the student's code runs as another user than the judge."""
    from autograder.judging import judge, sandbox

    secret = course.ROOT / SECRET
    text = secret.read_text(encoding="utf-8") if secret.is_file() else ""
    taken = judge.Exercise(submission.assignment, judge.released(submission.assignment), text).taken(submission)
    if isinstance(taken, Mark):
        return taken
    try:
        with contextlib.closing(judge.Judge(judge.Settings(unsafe=bool(sandbox.unavailable())))) as one:
            return one.judge(taken)
    except Exception:
        traceback.print_exc()
        return taken.nothing("error", "")  # with the maximum that it would have had


def _found(assignment: str, folder: Path) -> Submission:
    """The notebook in what was uploaded: files, or a folder called like the assignment. The student's name is in Gradescope's words."""
    try:
        about = json.loads((folder.parent / "submission_metadata.json").read_bytes())
        student = ", ".join(str(user["email"]) for user in about["users"]) or "student"
    except (OSError, ValueError, KeyError, TypeError):
        student = "student"
    inside = folder / assignment
    return in_folder(student, assignment, inside if inside.is_dir() and not inside.is_symlink() else folder)
