"""Student notebooks from the exercise sources: solutions and hidden checks out, stubs in. Byte-identical from run to run."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from autograder import course

CHAPTERS = course.ROOT / "chapters"


def student_notebooks() -> dict[Path, str]:
    """{path: text} of every student notebook, in chapters/ and in `course.RELEASED`, and of `course.MADE_FROM`. nbgrader works in a
    temporary folder, never in chapters/, whose other files it would delete."""
    with tempfile.TemporaryDirectory() as folder:
        made = {name: course.text(notebook) for name, notebook in course.make_course(Path(folder), gradebook=False).items()}
    digests = {name: course.source_digest(name) for name in made}
    return {
        **{CHAPTERS / name / f"{course.NOTEBOOK}.ipynb": text for name, text in made.items()},
        **{course.RELEASED / f"{name}.ipynb": text for name, text in made.items()},
        course.MADE_FROM: json.dumps(digests, indent=1) + "\n",
    }


def outdated(generated: dict[Path, str]) -> list[Path]:
    """The files that differ from what their sources generate, or are missing."""
    return [path for path, text in generated.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def write(generated: dict[Path, str]) -> list[Path]:
    """Writes what is outdated; returns those paths."""
    changed = outdated(generated)
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(generated[path], encoding="utf-8")
    return changed
