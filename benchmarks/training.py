"""What training reached: α and τ against the tokens trained on, and what begins or is learned otherwise beside it.

    python -m benchmarks.training runs/*

reads the directories of training runs (`specdec train … --run DIR`). Their loss curves, step by step, go into training.json, so that
a run that was begun again can be compared with them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import matplotlib.pyplot as plt
import typer

from specdec import plots
from specdec.tables import table
from specdec.training.cards import read_run

RESULTS = Path(__file__).parent / "results"
SHIPPED = {"distilled": plots.GREEN, "medusa": plots.ORANGE, "eagle-1": plots.BLUE, "eagle-3": plots.RED}  # specdec/weights/


def collected(run: Path) -> dict:
    """A run's configuration in one line, its loss in every step, and its validations."""
    config, log = read_run(run)
    marks = [{"step": line["step"], "tokens": line["tokens"], **line["validation"]} for line in log if "validation" in line]
    losses = [round(line["loss"], 5) for line in log if "loss" in line]
    told = {"method": config.method, "init": config.init, "loss": config.loss, "learning_rate": config.learning_rate}
    return told | {"command": config.command("FILE"), "steps": config.steps, "about": log[0]["about"], "losses": losses, "marks": marks}


def figure(runs: dict[str, dict]) -> plt.Figure:
    """α at depth 1, and τ, of the shipped heads against the tokens trained on."""
    left, right = plots.new_axes(width=10, height=3.8, ncols=2)
    for name, colour in SHIPPED.items():
        marks = runs.get(name, {}).get("marks", [])
        tokens = [mark["tokens"] / 1e6 for mark in marks]
        for ax, values in ((left, [mark["alpha"][0] for mark in marks]), (right, [mark["tau"] for mark in marks])):
            ax.plot(tokens, values, "o-", ms=3, color=colour, label=name)
    left.set(xlabel="tokens trained on, millions", ylabel="α at depth 1, greedy, held-out texts", ylim=(0, None))
    right.set(xlabel="tokens trained on, millions", ylabel="τ of a greedy chain behind the text", ylim=(1, None))
    right.legend(frameon=False)
    return left.figure


def markdown(results: dict) -> str:
    header = ["run", "begins as", "learns", "tokens", "held-out loss", "α by depth", "Σ min(p, q)", "τ"]
    rows = []
    for name, run in results["runs"].items():
        last = run["marks"][-1]
        alphas = " ".join(f"{alpha:.2f}".removeprefix("0") for alpha in last["alpha"])
        numbers = [f"{last['tokens']:,}", f"{last['loss']:.3f}", alphas, f"{last['overlap'][0]:.2f}", f"{last['tau']:.2f}"]
        rows.append([name, run["init"] or "–", run["loss"] or "–", *numbers])
    return "\n".join([
        "## What training reached\n",
        "On held-out texts of the same harvest, behind the text itself. Only losses of one method and one kind can be compared. The runs "
        "with a method's name are those of `specdec/weights/`; the short ones beside them compare beginnings and losses.\n",
        table(header, rows),
        "![α at depth 1 and τ against the tokens trained on](training.png)\n",
    ])  # fmt: skip


def main(
    runs: Annotated[list[Path], typer.Argument(exists=True, file_okay=False, help="Directories of training runs.")],
    out: Annotated[Path, typer.Option()] = RESULTS,
) -> None:
    """Collect runs into training.json and training.png."""
    found = {run.name.removesuffix(".run"): collected(run) for run in runs}
    ordered = {name: found[name] for name in (*SHIPPED, *sorted(found.keys() - SHIPPED.keys())) if name in found}
    out.mkdir(parents=True, exist_ok=True)
    (out / "training.json").write_text(json.dumps({"runs": ordered}, indent=None, separators=(",", ":")) + "\n")
    figure(ordered).savefig(out / "training.png", dpi=120)
    typer.echo(markdown({"runs": ordered}))


if __name__ == "__main__":
    typer.run(main)
