"""A card for a trained head, out of its run's own files: command, data, tokens, time, loss curve, acceptance."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from specdec.plots import BLUE, GREY, ORANGE, new_axes
from specdec.training.config import TrainConfig
from specdec.training.runs import MODEL, WEIGHTS
from specdec.training.trainer import CONFIG, LOG, read_log

ROWS = 8  # of a card's table
WINDOW = 50  # steps that a training loss is the mean of
DRAFTED = (
    "On held-out texts, behind the text itself (α: greedy, for each depth of a chain; τ: what such a chain would bring):\n"
)


def card(run: str | Path, to: str) -> str:
    """Markdown.

    Args:
        run: the directory that `train` wrote.
        to: the name of the weights in the command.

    Raises:
        ValueError: if there is no run, or it has not got as far as its first validation.
    """
    config, log = read_run(run)
    about, last = log[0]["about"], log[-1]
    stored = [path for path in (Path(run) / WEIGHTS, *(Path(run) / MODEL).glob("*.safetensors")) if path.exists()]
    size = sum(path.stat().st_size for path in stored)
    facts = [
        ("own parameters", f"{about['parameters']:,} ({size / 1e6:.1f} MB in half precision)"),
        ("data", f"{about['texts']:,} texts, {about['text_tokens']:,} tokens in `{config.data}`{_recorded(about)}"),
        (
            "trained on",
            f"{last['tokens']:,} tokens ({last['tokens'] / about['text_tokens']:.2f} × the data), {last['step']:,} steps",
        ),
        ("time", f"{_duration(last['seconds'])} on {about['device']}, {about['threads']} threads"),
    ]
    parts = [
        f"### {Path(to).name}\n",
        f"```sh\n{config.command(to)}\n```\n",
        _table(("", config.method), facts),
        "On held-out texts:\n" if config.method == "gpt" else DRAFTED,
        _table(*_curve(log)),
    ]
    return "\n".join(parts)


def _recorded(about: dict) -> str:
    n = about.get("recorded", 0)
    return f"; of {n:,} texts the target's features were recorded" if n else ""


def figure(run: str | Path, to: str | Path) -> None:
    """A picture: the loss, and α of every depth that is drafted, against the tokens trained on."""
    _, log = read_run(run)
    drafts = bool(log[0]["validation"]["alpha"])
    axes = np.atleast_1d(new_axes(width=9 if drafts else 5, height=3.4, ncols=1 + drafts))
    left = axes[0]
    steps = [line for line in log if "loss" in line]
    tokens = np.array([line["tokens"] for line in steps]) / 1e6
    left.plot(
        tokens, [_smooth(log, line["step"]) for line in steps], color=GREY, lw=1, label=f"training, mean of {WINDOW} steps"
    )
    marks = [line for line in log if "validation" in line]
    x = [line["tokens"] / 1e6 for line in marks]
    left.plot(x, [line["validation"]["loss"] for line in marks], "o-", ms=3, color=BLUE, label="held-out")
    left.set(xlabel="tokens trained on, millions", ylabel="loss")
    left.legend(frameon=False)
    if drafts:
        _draw_acceptance(axes[1], marks)
    left.figure.savefig(to, dpi=150)
    plt.close(left.figure)


def _draw_acceptance(right: plt.Axes, marks: list[dict]) -> None:
    x = [line["tokens"] / 1e6 for line in marks]
    alphas = np.array([line["validation"]["alpha"] for line in marks])
    for depth, shade in enumerate(plt.colormaps["viridis"](np.linspace(0.1, 0.85, alphas.shape[1]))):
        right.plot(x, alphas[:, depth], "o-", ms=3, color=shade, label=f"α at depth {depth + 1}")
    overlaps = [line["validation"]["overlap"][0] for line in marks]
    right.plot(x, overlaps, "--", color=ORANGE, label="Σ min(p, q), depth 1")
    right.set(xlabel="tokens trained on, millions", ylim=(0, 1))
    right.legend(frameon=False, fontsize=8)


def read_run(run: str | Path) -> tuple[TrainConfig, list[dict]]:
    """Configuration and loss curve. Raises ValueError if the directory has none."""
    run = Path(run)
    if not (run / CONFIG).is_file():
        raise ValueError(f"{run} has no {CONFIG}: it is no directory of a training run")
    log = read_log(run / LOG)
    if not log:
        raise ValueError(f"{run / LOG} is empty: the run has not begun")
    return TrainConfig.from_json((run / CONFIG).read_text()), log


def _curve(log: list[dict]) -> tuple[list[str], list[list[str]]]:
    marks = [line for line in log if "validation" in line]
    chosen = sorted({round(i) for i in np.linspace(0, len(marks) - 1, min(ROWS, len(marks)))})
    rows = []
    for line in (marks[i] for i in chosen):
        v = line["validation"]
        loss = f"{_smooth(log, line['step']):.3f}" if line["step"] else "–"
        rows.append([f"{line['step']:,}", f"{line['tokens']:,}", loss, f"{v['loss']:.3f}"])
        if v["alpha"]:
            alphas = " ".join(f"{value:.2f}".removeprefix("0") for value in v["alpha"])
            rows[-1] += [alphas, f"{v['overlap'][0]:.2f}", f"{v['tau']:.2f}"]
    return ["step", "tokens", "training loss", "held-out loss", "α by depth", "Σ min(p, q)", "τ"][: len(rows[0])], rows


def _smooth(log: list[dict], step: int) -> float:
    """The mean training loss of the WINDOW steps up to this one. The log has a line for every step, from 0 on."""
    return float(np.mean([line["loss"] for line in log[max(1, step - WINDOW + 1) : step + 1]]))


def _table(header, rows) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min" if minutes else f"{seconds:.0f} s"
