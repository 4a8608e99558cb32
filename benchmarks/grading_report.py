"""What `benchmarks.grading` found, as tables and a figure."""

from __future__ import annotations

import matplotlib.pyplot as plt

from autograder.judging.sandbox import Limits
from benchmarks.grading_runs import LOOK
from specdec import plots
from specdec.tables import Grid, table

MIB = 2**20


def failures(results: dict) -> list[str]:
    """Everything that must not be; nothing if all is well."""
    found = [f"{student}, {fault}" for student, fault in results["faults"].items()]
    killed = results["killed"]
    if killed:
        found += [] if killed["equal"] else ["grades.csv of the killed run differs from that of the run that was left alone"]
        for number, run in enumerate(killed["runs"], start=1):
            found += [f"run {number} made a finished mark again: {name}" for name in run["graded twice"]]
            found += [f"run {number} was outlived by {process}" for process in run["outlived"]]
    return found


# -- tables ------------------------------------------------------------------------------------------------------------


def verdicts(results: dict) -> Grid:
    rows = [[str(value) for value in row.values()] for row in results["verdicts"]]
    return list(results["verdicts"][0]), rows


def killed(results: dict) -> Grid:
    header = ["run", "ended", "after, s", "marks found", "marks left", "graded twice", "processes that outlived it"]
    rows = []
    for number, run in enumerate(results["killed"]["runs"], start=1):
        figures = f"{run['seconds']:.1f}", run["found"], run["left"], len(run["graded twice"]), len(run["outlived"])
        rows.append([str(number), "by SIGKILL" if run["killed"] else "by itself", *map(str, figures)])
    return header, rows


def runs(results: dict) -> list[tuple[str, dict]]:
    """Everything that was timed and left alone, by name."""
    named = [("ours, the class", results["class"]), *(("ours, honest ones of it", run) for run in results["samples"])]
    return named + ([("nbgrader's, honest ones of it", results["stock"])] if results["stock"] else [])


def per_minute(run: dict) -> float:
    """Marks, from the start of the command to the last one."""
    return 60 * len(run["moments"]) / run["moments"][-1]


def speeds(results: dict) -> Grid:
    header = ["graded", "workers", "submissions", "last mark, s", "in all, s", "marks a minute", "against nbgrader", "worker, MiB"]
    base = per_minute(results["stock"]) if results["stock"] else None
    rows = []
    for name, run in runs(results):
        ratio = f"{per_minute(run) / base:.1f}×" if base else "–"
        peak = f"{max(run['peaks']) / MIB:.0f}" if run["peaks"] else "–"
        figures = f"{run['moments'][-1]:.0f}", f"{run['seconds']:.0f}", f"{per_minute(run):.1f}", ratio, peak
        rows.append([name, str(run["workers"]), str(len(run["moments"])), *figures])
    return header, rows


def growth(results: dict) -> Grid:
    """The class again, at a quarter, a half and all of its marks."""
    moments = results["class"]["moments"]
    rows = []
    for part in (4, 2, 1):
        marks = max(1, len(moments) // part)
        rows.append([str(marks), f"{moments[marks - 1]:.0f}", f"{moments[marks - 1] / marks:.2f}"])
    return ["marks", "seconds", "seconds a mark"], rows


def markdown(results: dict) -> str:
    about = results["about"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    limit = Limits().memory / MIB
    parts = [
        f"# Grading a class of {about['count']}\n",
        f"Submissions of chapter 02 drawn from the zoo with seed {about['seed']}, so that every verdict is known beforehand. "
        f"{about['machine']}, {about['cores']} cores; {versions}.\n",
        "## Verdicts\n",
        table(*verdicts(results)),
        *(f"- {line}\n" for line in failures(results)),
    ]
    if results["killed"]:
        equal = "equal byte for byte" if results["killed"]["equal"] else "**not equal**"
        parts += [
            "## Killed and started again\n",
            f"SIGKILL at {len(results['killed']['runs']) - 1} random moments, also drawn with the seed. grades.csv and that of the run "
            f"that was left alone are {equal}.\n",
            table(*killed(results)),
        ]
    parts += [
        "## Speed\n",
        table(*speeds(results)),
        "All seconds begin with the command. Behind its last mark ours writes the gradebook and a feedback page for everybody, for which "
        "nbgrader has a second command that is not timed here. nbgrader's own runs have no sandbox, so it gets no cheats; the "
        "class has them, and some of them wait for a time limit. Memory is the proportional set size of a worker, its sandbox and the "
        f"submission in it, looked at every {LOOK:.0f} seconds; a submission may take {limit:.0f} MiB beyond what Python and torch have.\n",
        "## Growth\n",
        table(*growth(results)),
        f"![Marks over time]({stem(about['quick'])}.png)\n",
    ]
    return "\n".join(parts)


def stem(quick: bool) -> str:
    return "grading_quick" if quick else "grading"  # a trial run must not replace what was measured


# -- figure ------------------------------------------------------------------------------------------------------------


def figure(results: dict) -> plt.Figure:
    """Marks over time: the class, the sample with one worker, and nbgrader's own."""
    ax = plots.new_axes()
    colours = iter(plots.MANY)
    for name, run in runs(results):
        workers = "1 worker" if run["workers"] == 1 else f"{run['workers']} workers"
        minutes = [0.0, *(moment / 60 for moment in run["moments"])]
        ax.step(minutes, range(len(minutes)), where="post", color=next(colours), label=f"{name}, {workers}")
    ax.set(xlabel="minutes", ylabel="marks", xlim=(0, None), ylim=(0, None))
    ax.legend(frameon=False)
    return ax.figure
