"""Every right solution of the zoo through its checks, under the seeds of many students: how often does it lose a mark by chance?

    python -m benchmarks.grading_repeat --runs 1000

In processes of its own, without a sandbox. What is finished is kept: started again, it goes on with what is missing. The exit status is
1 if a right solution failed once.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from autograder import checks, files, zoo
from autograder.zoo import verdicts
from benchmarks import grading_parts
from specdec.progress import progress

BLOCK = 10  # runs that are kept together
console = Console(highlight=False)


def observe(case: zoo.Case, seeds: Sequence[int]) -> dict:
    """How long each check took, and [seed, check, message] of each that failed."""
    torch.set_num_threads(1)
    functions = zoo.functions(case.assignment, case)
    failed, seconds = [], {}
    for name, asked in zoo.checks(case.assignment).items():
        began = time.perf_counter()
        for seed in seeds:
            result = checks.run(name, *(functions[function] for function in asked), seed=seed)
            if not result.passed:
                failed.append([seed, name, result.message])
        seconds[name] = time.perf_counter() - began
    return {"runs": len(seeds), "failed": failed, "seconds": seconds}


def students_seeds(assignment: str, start: int, stop: int) -> list[int]:
    """As the grader makes them of a secret and a name."""
    return [verdicts.exercise(assignment).seed(f"student-{number}", "") for number in range(start, stop)]


def repeat(cases: Sequence[zoo.Case], runs: int, jobs: int, folder: Path) -> dict[zoo.Case, list[dict]]:
    """{case: its blocks}; those that are not in the folder yet are run, a block of every case after the other."""
    found: dict[zoo.Case, list[dict]] = {case: [] for case in cases}
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool, progress() as bar:
        task, waiting = bar.add_task("Repeating", total=runs * len(cases)), {}
        for start in range(0, runs, BLOCK):
            for case in cases:
                seeds = students_seeds(case.assignment, start, min(start + BLOCK, runs))
                path, known = folder / f"{case}-{start:06d}.json", {"seeds": seeds, "checks": verdicts.exercise(case.assignment).version}
                part = grading_parts.load(path, known)
                if part is None:
                    waiting[pool.submit(observe, case, seeds)] = case, path, known
                else:
                    found[case].append(part)
                    bar.advance(task, part["runs"])
        for future in as_completed(waiting):
            case, path, known = waiting[future]
            grading_parts.store(path, known, future.result())
            found[case].append(future.result())
            bar.advance(task, future.result()["runs"])
    return found


def summary(case: zoo.Case, blocks: Sequence[dict]) -> dict:
    """A right run passes every check: its seed is in no failure."""
    runs, failed = sum(block["runs"] for block in blocks), sorted(failure for block in blocks for failure in block["failed"])
    names = zoo.checks(case.assignment)
    return {
        "case": str(case), "runs": runs, "passed": runs - len({seed for seed, *_ in failed}),
        "seconds": {name: sum(block["seconds"][name] for block in blocks) / runs for name in names}, "failed": failed,
    }  # fmt: skip


def main(
    runs: Annotated[int, typer.Option(min=1, help="Of each right solution.")] = 1000,
    only: Annotated[str, typer.Option(help="Cases, 02-loops,05-slots; all without.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
    out: Annotated[Path, typer.Option(help="Where the figures go, as JSON.")] = Path("benchmarks/results/grading_repeat.json"),
) -> None:
    """Run what is missing, and count."""
    cases = [case for case in zoo.cases("right") if not only or str(case) in only.split(",")]
    folder = out.with_suffix(".parts")
    rows = [summary(case, blocks) for case, blocks in repeat(cases, runs, jobs, folder).items()]
    files.write(out, json.dumps(rows, indent=1) + "\n")
    shutil.rmtree(folder)
    table = Table("right solution", "runs", "passed", "seconds a run")
    for row in rows:
        style = None if row["passed"] == row["runs"] else "red"
        table.add_row(row["case"], str(row["runs"]), str(row["passed"]), f"{sum(row['seconds'].values()):.2f}", style=style)
    console.print(table)
    for row in rows:
        for seed, name, message in row["failed"]:
            console.print(f"{row['case']}, seed {seed}: {name}: {message}", style="red", markup=False)
    if any(row["failed"] for row in rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
