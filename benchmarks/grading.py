"""Grades a class whose marks are known, kills a run and starts it again, and compares the speed with nbgrader's own.

    python -m benchmarks.grading               # everything; hours, most of them nbgrader's: --stock 30 gives it fewer submissions
    python -m benchmarks.grading --quick       # does it work?

What is finished is kept in a folder of parts: started again, the benchmark goes on with what is missing. Run it on a quiet machine.
The exit status is 1 if a single mark is not what it must be.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import matplotlib.pyplot as plt
import torch
import typer
from rich.console import Console
from rich.table import Table

from autograder import files
from autograder.judging import sandbox
from autograder.judging.judge import Exercise, released
from autograder.marks import Ledger
from benchmarks import grading_class, grading_parts, grading_report, grading_runs
from benchmarks.grading_class import ASSIGNMENT, Student
from specdec.bench import machine
from specdec.progress import progress

console = Console(highlight=False)
JOBS = 2  # workers of the class
BLOCK = 25  # submissions of one call of nbgrader: what is lost at most when the benchmark is stopped


class Parts:
    """The parts of the benchmark, each in a file of `folder` under the conditions that it was measured under."""

    def __init__(self, folder: Path, about: dict, members: list[Student]):
        self.folder, self.about, self.members = folder, about, members
        self.submitted = grading_class.hand_in(members, folder / "class")

    def kept(self, name: str, settings: dict, total: int, measure: Callable[[Path, grading_runs.Advance], dict]) -> dict:
        """The part of that name, from its file if it is there, otherwise measured in an empty folder."""
        path, known = self.folder / f"{name}.json", {"about": self.about, "settings": settings}
        part = grading_parts.load(path, known)
        if part is None:
            scratch = self.folder / f"{name}.run"
            shutil.rmtree(scratch, ignore_errors=True)
            with progress() as bar:
                task = bar.add_task(name, total=total)
                part = measure(scratch, lambda marks: bar.update(task, completed=marks))
            grading_parts.store(path, known, part)
            shutil.rmtree(scratch)
            console.print(f"{name}: done", style="dim")
        return part

    def whole(self) -> dict:
        """The class, left alone, with every mark that is not what it must be."""

        def measure(out: Path, advance: grading_runs.Advance) -> dict:
            run = grading_runs.grade(self.submitted, out, JOBS, advance)
            faults = grading_class.faults(self.members, Ledger(out / "marks").all())
            return {"run": run, "faults": faults, "grades": _digest(out / "grades.csv")}

        return self.kept("whole", {"jobs": JOBS}, len(self.members), measure)

    def killed(self, kills: int, whole: dict) -> dict:
        lives = grading_runs.moments_of_death(kills, whole["run"]["seconds"], self.about["seed"])

        def measure(out: Path, advance: grading_runs.Advance) -> dict:
            found = grading_runs.killed(self.submitted, out, JOBS, lives, advance)
            return {**found, "equal": _digest(out / "grades.csv") == whole["grades"]}

        return self.kept("killed", {"jobs": JOBS, "lives": lives}, len(self.members), measure)

    def sample(self, size: int, jobs: int) -> dict:
        chosen = grading_class.honest(self.members)[:size]

        def measure(out: Path, advance: grading_runs.Advance) -> dict:
            out.mkdir()
            submitted = grading_class.hand_in(chosen, out / "class")
            return grading_runs.grade(submitted, out / "graded", jobs, advance)

        return self.kept(f"sample-{jobs}", {"size": size}, len(chosen), measure)

    def stock(self, most: int | None) -> dict:
        """Block after block, one behind the other on the clock."""
        names = [student.name for student in grading_class.honest(self.members)][:most]
        seconds, moments = 0.0, []
        for start in range(0, len(names), BLOCK):
            block = names[start : start + BLOCK]
            part = self.kept(
                f"stock-{start:04d}", {"names": block}, len(block),
                lambda folder, advance, block=block: grading_runs.stock(self.submitted, block, folder, advance),
            )  # fmt: skip
            moments += [seconds + moment for moment in part["moments"]]
            seconds += part["seconds"]
        return {"workers": 1, "seconds": seconds, "moments": moments, "peaks": []}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def conditions(count: int, seed: int, quick: bool) -> dict:
    """All that must be the same for a part to count."""
    return {
        "count": count, "seed": seed, "quick": quick, "machine": machine(torch.empty(0)), "cores": os.cpu_count(),
        "versions": {"Python": platform.python_version(), **{name: version(name) for name in ("nbgrader", "distributed", "torch")}},
        "checks": Exercise(ASSIGNMENT, released(ASSIGNMENT)).version,
    }  # fmt: skip


def save(results: dict, out: Path) -> None:
    stem = grading_report.stem(results["about"]["quick"])
    grading_report.figure(results).savefig(out / f"{stem}.png", dpi=120)
    plt.close("all")
    files.write(out / f"{stem}.md", grading_report.markdown(results))
    files.write(out / f"{stem}.json", json.dumps(results, indent=1) + "\n")


def show(results: dict) -> None:
    killed = results["killed"]
    named = [("Verdicts", grading_report.verdicts), *([("Killed", grading_report.killed)] if killed else [])]
    for title, grid in [*named, ("Speed", grading_report.speeds), ("Growth", grading_report.growth)]:
        header, rows = grid(results)
        table = Table(*header, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)


def main(
    count: Annotated[int | None, typer.Option(min=1, help="Submissions; 300 without.")] = None,
    kill: Annotated[int | None, typer.Option(min=0, help="How often a second run is killed; 3 without.")] = None,
    sample: Annotated[int | None, typer.Option(min=0, help="Honest ones that 1 and 2 workers grade again; 24 without.")] = None,
    stock: Annotated[int | None, typer.Option(min=0, help="Honest ones that nbgrader gets; all without, 15 s each.")] = None,
    seed: Annotated[int, typer.Option(help="Of the class and of the moments at which it is killed.")] = 0,
    quick: Annotated[bool, typer.Option(help="8 submissions, killed once, 2 of them for nbgrader: does it work?")] = False,
    out: Annotated[Path, typer.Option(help="The folder of JSON, tables and figure.")] = Path("benchmarks/results"),
) -> None:
    """Measure what is missing, and write down everything."""
    if sandbox.unavailable():
        console.print(f"Error: {sandbox.unavailable()}", style="red", markup=False)
        raise typer.Exit(2)
    usual = (8, 1, 3, 2) if quick else (300, 3, 24, None)
    count, kill, sample, stock = (low if given is None else given for given, low in zip((count, kill, sample, stock), usual))
    folder = out / f"{grading_report.stem(quick)}.parts"
    parts = Parts(folder, conditions(count, seed, quick), grading_class.students(count, seed))
    whole = parts.whole()
    results = {
        "about": parts.about,
        "verdicts": grading_class.judged(parts.members, whole["faults"]),
        "faults": whole["faults"],
        "class": whole["run"],
        "killed": parts.killed(kill, whole) if kill else None,
        "samples": [parts.sample(sample, jobs) for jobs in (1, JOBS)] if sample else [],
        "stock": parts.stock(stock) if stock != 0 else None,
    }
    save(results, out)
    shutil.rmtree(folder)
    show(results)
    failures = grading_report.failures(results)
    for line in failures:
        console.print(line, style="red", markup=False)
    if failures:
        raise typer.Exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not at once: a grader that runs must end first
    typer.run(main)
