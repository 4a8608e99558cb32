"""`python -m autograder`: student notebooks from their sources, and marks from submissions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
console = Console(highlight=False)


@app.callback()
def main() -> None:
    """Student notebooks from their sources, and marks from submissions."""


@app.command()
def exercises(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a student notebook is outdated.")] = False,
) -> None:
    """Write the student notebooks in chapters/ from solutions/."""
    from autograder import generate  # nbgrader takes seconds to import: only for the command that needs it

    generated = generate.student_notebooks()
    changed = generate.outdated(generated) if check else generate.write(generated)
    for path in changed:
        console.print(f"{'outdated' if check else 'written'}: {path.relative_to(generate.course.ROOT)}")
    if check and changed:
        console.print("Run `make exercises`, and commit what it writes.")
        raise typer.Exit(1)
    if not changed:
        console.print(f"{len(generated)} student notebooks are up to date")


@app.command()
def grade(
    submissions: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="student/NN-slug/exercise.ipynb")],
    out: Annotated[Path, typer.Argument(file_okay=False, help="Where grades.csv, feedback/ and course/ go.")],
    jobs: Annotated[int, typer.Option(min=1, help="Submissions graded at the same time.")] = min(2, os.cpu_count() or 1),
    seconds: Annotated[float, typer.Option(min=1, help="Time for one notebook.")] = 600,
    cell_seconds: Annotated[int, typer.Option(min=1, help="Time for one cell.")] = 90,
    secret: Annotated[str, typer.Option(envvar="AUTOGRADER_SECRET", help="Makes the hidden checks' seeds.")] = "",
) -> None:
    """Grade a folder of submissions."""
    from autograder import runner

    settings = runner.Settings(jobs, seconds, cell_seconds, secret)
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("Preparing the course", total=None)

        def advance(row: runner.Row, total: int) -> None:
            bar.update(task, description="Grading", total=total, advance=1)
            bar.console.print(f"{row.student}  {row.assignment}  {row.score:g}/{row.max_score:g}  {row.status}", markup=False)

        rows = runner.grade(submissions, out, settings, advance)
    console.print(f"{len(rows)} rows in {out / 'grades.csv'}, feedback in {out / 'feedback'}")


if __name__ == "__main__":
    app()
