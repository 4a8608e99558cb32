"""`python -m autograder`: student notebooks from their sources, and marks from submissions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from autograder import keys
from autograder.marks import Mark

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
console = Console(highlight=False)
JOBS = min(2, os.cpu_count() or 1)
SecretFile = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="Makes the seeds of the checks; or AUTOGRADER_SECRET in the environment.")
]
OldSecret = Annotated[str, typer.Option(hidden=True)]  # as it was once given


@app.callback()
def main() -> None:
    """Student notebooks from their sources, and marks from submissions."""


@app.command()
def exercises(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a student notebook is outdated.")] = False,
) -> None:
    """Write the student notebooks in chapters/, and the grader's copies, from solutions/."""
    from autograder import generate  # nbgrader takes seconds to import: only for the command that needs it

    generated = generate.student_notebooks()
    changed = generate.outdated(generated) if check else generate.write(generated)
    for path in changed:
        console.print(f"{'outdated' if check else 'written'}: {path.relative_to(generate.course.ROOT)}")
    if check and changed:
        console.print("Run `make exercises`, and commit what it writes.")
        raise typer.Exit(1)
    if not changed:
        console.print(f"{len(generated)} files made from solutions/ are up to date")


@app.command()
def grade(
    submissions: Annotated[Path, typer.Argument(exists=True, help="student/NN-slug/exercise.ipynb, an nbgrader course, or a Canvas zip.")],
    out: Annotated[Path, typer.Argument(file_okay=False, help="Where grades.csv, feedback/ and all the rest go.")],
    jobs: Annotated[int, typer.Option(min=1, help="Submissions graded at the same time.")] = JOBS,
    scheduler: Annotated[str, typer.Option(help="A dask scheduler, tls://host:8786, whose workers grade in place of --jobs.")] = "",
    tls_ca: Annotated[str, typer.Option(help="For --scheduler: the authority that signed all certificates, a PEM file.")] = "",
    tls_cert: Annotated[str, typer.Option(help="For --scheduler: your certificate, a PEM file.")] = "",
    tls_key: Annotated[str, typer.Option(help="For --scheduler: its key, a PEM file.")] = "",
    unencrypted: Annotated[bool, typer.Option("--unencrypted", help="For --scheduler tcp://…: whoever reaches it is you.")] = False,
    assignment: Annotated[str, typer.Option(help="NN-slug, for a Canvas zip: its file names do not say.")] = "",
    roster: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Canvas's gradebook export, for canvas.csv.")] = None,
    db_url: Annotated[str, typer.Option(envvar="AUTOGRADER_DB_URL", help="A gradebook elsewhere, postgresql://…")] = "",
    secret_file: SecretFile = None,
    secret: OldSecret = "",
    seconds: Annotated[float, typer.Option(min=1, help="Of processor time for one submission, and of sleep.")] = 300,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Without bubblewrap: students' code can read and write what you can.")] = False,
) -> None:
    """Grade submissions. Stopped at any moment and started again, it goes on where it was."""
    from autograder import cluster, runner
    from autograder.judging.judge import Settings

    if not scheduler and (tls_ca or tls_cert or tls_key or unencrypted):
        raise typer.BadParameter("--tls-ca, --tls-cert, --tls-key and --unencrypted are for a --scheduler")
    remote = cluster.Remote(scheduler, tls_ca, tls_cert, tls_key, unencrypted) if scheduler else None
    secret = _secret(secret_file, secret)
    if not secret and not (out / keys.OWN).exists():
        console.print(_OWN_SECRET.format(path=out / keys.OWN), style="yellow", markup=False)
    students = roster.read_text(encoding="utf-8-sig") if roster else ""
    run = runner.Run(jobs, remote, secret, db_url, assignment, students, Settings(unsafe, seconds))
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("Grading", total=None)

        def advance(mark: Mark, total: int) -> None:
            bar.update(task, total=total, advance=1)
            bar.console.print(f"{mark.student}  {mark.assignment}  {mark.score:g}/{mark.max_score:g}  {mark.status}", markup=False)

        try:
            marks = runner.grade(submissions, out, run, advance)
        except runner.NoSandbox as error:
            bar.stop()
            console.print(f"Error: {error}\n{_UNSAFE}", style="red", markup=False)
            raise typer.Exit(2) from None
        except ValueError as error:
            bar.stop()
            console.print(f"Error: {error}", style="red", markup=False)
            raise typer.Exit(2) from None
    unknown = sum(not mark.judged for mark in marks)
    console.print(f"{len(marks) - unknown} marks: {out}/grades.csv; the class: {out}/class.html; feedback: {out}/feedback", markup=False)
    if unknown:
        console.print(_UNKNOWN.format(number=unknown), style="yellow", markup=False)


def _secret(path: Path | None, shown: str) -> str:
    """The secret of a file or of the environment; not of the command line."""
    try:
        if shown:
            raise ValueError(f"--secret would show in `ps` to everybody on this machine: use --secret-file, or {keys.VARIABLE}")
        return keys.given(path)
    except ValueError as error:
        console.print(f"Error: {error}", style="red", markup=False)
        raise typer.Exit(2) from None


_OWN_SECRET = (
    "Without --secret-file the seeds of the checks are made from a random secret, which is kept in {path}: whoever reads it knows what "
    "the checks will ask."
)
_UNKNOWN = (
    "{number} more without a mark, since the grader itself failed (`error`): their cells in grades.csv and canvas.csv are empty, and a "
    "gradebook keeps what it has. Grade once more: only they are tried again."
)
_UNSAFE = (
    "Nothing was graded. With --unsafe, submissions run without a sandbox: one that wants to can read and change what you can, the marks "
    "of others among it. Do that only for code that you trust, or on a machine that holds nothing else."
)


@app.command()
def zoo(
    whole: Annotated[bool, typer.Option("--whole", help="All cases, not the fast part.")] = False,
    kinds: Annotated[str, typer.Option(help="Which, separated by commas.")] = "right,wrong,cheat",
    jobs: Annotated[int, typer.Option(min=1, help="Submissions judged at the same time.")] = JOBS,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Without bubblewrap; no cheats then.")] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Only the matrices: each mistake in each style. --whole has them too.")] = False,
) -> None:
    """Judge submissions whose verdict is known: right ones, wrong ones, cheats; and each mistake in each style."""
    from autograder.judging import sandbox
    from autograder.judging.judge import Settings
    from autograder.runner import Run
    from autograder.zoo import matrix as mistakes
    from autograder.zoo import verdicts

    wrong = sum([mistakes.table(each, console) for each in mistakes.matrices()]) if matrix or whole else 0
    if matrix:
        raise typer.Exit(min(wrong, 1))
    if not unsafe and sandbox.unavailable():
        console.print(f"Skipped: {sandbox.unavailable()}", style="yellow", markup=False)
        raise typer.Exit(min(wrong, 1))
    cases = list(verdicts.chosen([kind for kind in kinds.split(",") if not (unsafe and kind == "cheat")], whole))
    title = "The zoo" if whole else "The zoo, its fast part"
    if verdicts.table(cases, title, Run(jobs, judge=Settings(unsafe)), console) or wrong:
        raise typer.Exit(1)


@app.command()
def gradescope_zip(
    assignment: Annotated[str, typer.Argument(help="NN-slug")],
    out: Annotated[Path, typer.Argument(dir_okay=False, help="Where the zip goes.")],
    secret_file: SecretFile = None,
    secret: OldSecret = "",
    pip_args: Annotated[str, typer.Option(envvar="PIP_ARGS", help="More arguments for pip in Gradescope's image.")] = "",
) -> None:
    """Build the zip that Gradescope takes as an autograder."""
    from autograder import gradescope as building

    secret = _secret(secret_file, secret)
    if not secret:
        console.print("The seeds of the checks are made from a random secret in the zip; --secret-file is for one of your own.")
    try:
        building.build(assignment, out, secret, pip_args)
    except ValueError as error:
        console.print(f"Error: {error}", style="red", markup=False)
        raise typer.Exit(2) from None
    console.print(f"{out}: {out.stat().st_size / 1e6:.1f} MB, for {assignment}", markup=False)


@app.command()
def gradescope(
    assignment: Annotated[str, typer.Argument(help="NN-slug")],
    submission: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The folder with what was uploaded.")],
    results: Annotated[Path, typer.Argument(dir_okay=False, help="Where results.json goes.")],
) -> None:
    """Grade one submission as Gradescope does; its zip runs this."""
    from autograder import gradescope as running

    mark = running.run(assignment, submission, results)
    console.print(f"{mark.student}  {mark.assignment}  {mark.score:g}/{mark.max_score:g}  {mark.status}", markup=False)


if __name__ == "__main__":
    app()
