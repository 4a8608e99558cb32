"""What the library's own code costs in a round: everything but the forwards of the two models.

    python -m benchmarks.overhead

Every call of a module is a model's, the head's included; the rest of the round is ours: drafting around the draft's forwards, p out of
logits, the rule, the cache, the one synchronisation. Run it on a quiet machine.
"""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from benchmarks.prompts import PROMPTS
from specdec.decoding import stream
from specdec.distributions import Sampling
from specdec.methods import METHODS, Settings, build
from specdec.models import load_model

SAMPLINGS = {"T = 0": Sampling(0), "T = 1": Sampling(), "T = 0.7, top-p 0.9": Sampling(0.7, top_p=0.9)}
SETTINGS = Settings(k=4)


class ModelClock:
    """Adds up the time that is spent inside modules, whichever they are."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._began = 0.0, 0, 0.0
        self._hooks = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave)]

    def _enter(self, *_: object) -> None:
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def _leave(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


def measure(target, name: str, sampling: Sampling, tokens: int) -> dict[str, float]:
    """Medians over all rounds but the first of each text, in milliseconds."""
    whole, ours, clock = [], [], ModelClock()
    drafter = build(name, target, SETTINGS)
    for prompt in PROMPTS[:4]:
        for number, step in enumerate(stream(target, prompt, drafter, sampling, tokens)):
            if number:
                whole.append(1000 * step.seconds)
                ours.append(whole[-1] - 1000 * clock.seconds)
            clock.seconds = 0.0
    clock.close()
    return {"nodes": drafter.max_nodes if drafter else 0, "round": median(whole), "ours": median(ours)}


def main(
    tokens: Annotated[int, typer.Option(help="For each of four prompts.")] = 24,
    device: Annotated[str, typer.Option()] = "cpu",
    out: Annotated[Path, typer.Option()] = Path("benchmarks/results/overhead.json"),
) -> None:
    """Measure every method at three samplings, and print the shares."""
    target = load_model("smollm2-135m", device)
    names = ["none", *METHODS, "eagle-3+prompt-lookup"]
    measure(target, "none", SAMPLINGS["T = 0"], tokens)  # the first forwards of a process choose kernels
    cases = [(sampling, name) for sampling in SAMPLINGS for name in names]
    rows = [{"sampling": s, "drafter": n, **measure(target, n, SAMPLINGS[s], tokens)} for s, n in track(cases)]
    machine = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"device": machine, "threads": torch.get_num_threads(), "rows": rows}, indent=1) + "\n")
    table = Table("sampling", "drafter", "nodes", "round, ms", "ours, ms", "share")
    for row in rows:
        figures = f"{row['round']:.1f}", f"{row['ours']:.2f}", f"{row['ours'] / row['round']:.1%}"
        table.add_row(row["sampling"], row["drafter"], str(row["nodes"]), *figures)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
