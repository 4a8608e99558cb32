"""Runs of graders over a folder of submissions: ours, left alone or killed, and nbgrader's own. Each is timed, and its memory watched."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from autograder import course, keys
from autograder.intake.submission import NOTEBOOK
from benchmarks.grading_class import ASSIGNMENT

SECRET = "benchmark"
POLL = 0.5  # seconds between two looks at the marks
LOOK = 10.0  # and at the memory: the kernel adds up a process's pages each time
GONE = 30.0  # seconds in which everything that a killed run had started must have ended

Advance = Callable[[int], None]  # gets the number of marks


def marks_in(out: Path) -> dict[str, int]:
    """{file of a finished mark: when it was written, in nanoseconds}."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "marks").glob("[!.]*.json")}


@contextlib.contextmanager
def started(submitted: Path, out: Path, jobs: int) -> Iterator[subprocess.Popen]:
    """`python -m autograder grade`, with a process group of its own that does not outlive the block."""
    command = [sys.executable, "-m", "autograder", "grade", str(submitted), str(out), "--jobs", str(jobs)]
    environment = os.environ | {keys.VARIABLE: SECRET}
    with out.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, cwd=course.ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
        if process.poll() not in (None, 0, -signal.SIGKILL):
            raise RuntimeError(f"the grader failed:\n{out.with_suffix('.log').read_text(encoding='utf-8')[-2000:]}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def grade(submitted: Path, out: Path, jobs: int, advance: Advance) -> dict:
    """One run that is left alone. moments: seconds until each mark; peaks: bytes, of each worker."""
    began, memory, looked = time.time_ns(), Memory(), 0.0
    with started(submitted, out, jobs) as process:
        while process.poll() is None:
            young = time.time_ns() - began < LOOK * 1e9  # a short run is looked at, too
            if young or time.monotonic() - looked > LOOK:
                memory.look(process.pid)
                looked = time.monotonic()
            advance(len(marks_in(out)))
            time.sleep(POLL)
        seconds = (time.time_ns() - began) / 1e9
    moments = sorted((written - began) / 1e9 for written in marks_in(out).values())
    return {"workers": jobs, "seconds": seconds, "moments": moments, "peaks": sorted(memory.peaks.values())}


class Memory:
    """The most that each worker with its sandbox and the submission in it had at one time, as often as it was looked at."""

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}

    def look(self, grader: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for worker in psutil.Process(grader).children():
                family = worker.children(recursive=True)
                if family and any("spawn_main" in word for word in worker.cmdline()):  # one that makes pages has no sandbox
                    self.peaks[worker.pid] = max(self.peaks.get(worker.pid, 0), sum(map(_bytes, [worker, *family])))


def _bytes(process: psutil.Process) -> int:
    """Proportional set size: pages that n processes share count 1/n each. Where it may not be read, all that is resident."""
    with contextlib.suppress(psutil.NoSuchProcess):
        try:
            return process.memory_full_info().pss
        except psutil.AccessDenied:
            return process.memory_info().rss
    return 0


# -- killed ------------------------------------------------------------------------------------------------------------


def moments_of_death(kills: int, seconds: float, seed: int) -> list[float]:
    """How long each run may live, so that together they reach `kills` random moments of a run that was left alone."""
    draw = random.Random(f"kill {seed}")
    moments = sorted(draw.uniform(0, seconds) for _ in range(kills))
    return [after - before for before, after in zip([0.0, *moments], moments)]


def killed(submitted: Path, out: Path, jobs: int, lives: list[float], advance: Advance) -> dict:
    """Runs that are killed after so many seconds, and a last one that is left alone.

    Each: the marks that it found and left; which finished ones it made again, and which processes outlived it.
    """
    runs = []
    for life in [*lives, None]:
        before, began = marks_in(out), time.monotonic()
        with started(submitted, out, jobs) as process:
            while process.poll() is None and (life is None or time.monotonic() - began < life):
                advance(len(marks_in(out)))
                time.sleep(POLL)
            was_killed, left = _kill(process)
        after = marks_in(out)
        again = sorted(name for name, written in before.items() if after.get(name) != written)
        runs.append({
            "killed": was_killed, "seconds": time.monotonic() - began, "found": len(before), "left": len(after),
            "graded twice": again, "outlived": left,
        })  # fmt: skip
    return {"runs": runs}


def _kill(process: subprocess.Popen) -> tuple[bool, list[str]]:
    """Kills the process group. Returns whether it was still running, and what is left of its family."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return False, []
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    ended_itself = process.wait() != -signal.SIGKILL
    _, alive = psutil.wait_procs(family, timeout=GONE)
    return not ended_itself, [repr(process) for process in alive]


# -- nbgrader's own ----------------------------------------------------------------------------------------------------


def stock(submitted: Path, names: list[str], folder: Path, advance: Advance) -> dict:
    """`nbgrader autograde` as it comes, in a course of its own: without our settings, and without a sandbox."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source" / ASSIGNMENT / NOTEBOOK
    source.parent.mkdir(parents=True)
    source.write_text(course.text(course.source_notebook(ASSIGNMENT)), encoding="utf-8")
    (folder / "nbgrader_config.py").write_text('c = get_config()\nc.CourseDirectory.course_id = "stock"\n', encoding="utf-8")
    _nbgrader(folder, "generate_assignment", lambda: None)
    for name in names:
        shutil.copytree(submitted / name, folder / "submitted" / name)
    began = time.time_ns()
    _nbgrader(folder, "autograde", lambda: advance(len(_autograded(folder))))
    seconds = (time.time_ns() - began) / 1e9
    return {"seconds": seconds, "moments": sorted((written - began) / 1e9 for written in _autograded(folder))}


def _autograded(folder: Path) -> list[int]:
    return [path.stat().st_mtime_ns for path in (folder / "autograded").glob(f"*/{ASSIGNMENT}/{NOTEBOOK}")]


def _nbgrader(folder: Path, command: str, watch: Callable[[], None]) -> None:
    """Runs to the end, whatever it says of single submissions: what it has graded is there, or is not."""
    with (folder / f"{command}.log").open("wb") as log:
        arguments = [sys.executable, "-m", "nbgrader", command, ASSIGNMENT]
        process = subprocess.Popen(arguments, cwd=folder, stdout=log, stderr=log, env=os.environ | {"JUPYTER_PREFER_ENV_PATH": "1"})
    try:
        while process.poll() is None:
            watch()
            time.sleep(POLL)
    finally:
        process.kill()
        process.wait()
