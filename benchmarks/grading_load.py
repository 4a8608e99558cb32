"""Part of a class graded twice, beside processes that never rest and alone: load must cost nobody a mark.

    python -m benchmarks.grading_load              # 60 of the class of 300, beside eight busy processes

Both runs must write the same grades.csv, byte for byte, and every mark must be what it must be; otherwise the exit status is 1.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from autograder.judging import sandbox
from autograder.marks import Ledger
from benchmarks import grading_class, grading_runs
from specdec.progress import progress

console = Console(highlight=False)
CLASS = 300  # as benchmarks.grading has it
JOBS = 2


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that keep a processor busy until the block ends."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main(
    count: Annotated[int, typer.Option(min=1, max=CLASS, help="Submissions, drawn from the class.")] = 60,
    busy: Annotated[int, typer.Option(min=1, help="Processes of the load.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the class and of those drawn from it.")] = 0,
) -> None:
    """Grade beside the load, grade without, and compare."""
    if sandbox.unavailable():
        console.print(f"Error: {sandbox.unavailable()}", style="red", markup=False)
        raise typer.Exit(2)
    members = random.Random(f"load {seed}").sample(grading_class.students(CLASS, seed), count)
    written, failed = [], False
    with tempfile.TemporaryDirectory() as scratch, progress() as bar:
        submitted = grading_class.hand_in(members, Path(scratch) / "class")
        for processes in (busy, 0):
            out = Path(scratch) / f"beside-{processes}"
            task = bar.add_task(f"beside {processes} busy processes", total=count)
            with load(processes):
                run = grading_runs.grade(submitted, out, JOBS, lambda marks, task=task: bar.update(task, completed=marks))
            faults = grading_class.faults(members, Ledger(out / "marks").all())
            written.append((out / "grades.csv").read_bytes())
            failed |= bool(faults)
            console.print(
                f"beside {processes} busy processes: {count} marks in {run['seconds']:.0f} s, {len(faults)} not what they must be"
            )
            for student, fault in faults.items():
                console.print(f"  {student}: {fault}", style="red", markup=False)
    same = written[0] == written[1]
    console.print("grades.csv: equal byte for byte" if same else "grades.csv: not equal", style="green" if same else "red")
    if failed or not same:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
