"""Greedy texts with and without speculation, token by token: in forwards of one fixed shape, and in the default mode.

    python -m benchmarks.bit_identity --width 8 --tokens 500 --oracle
    python -m benchmarks.bit_identity --width 8 --tokens 100
    python -m benchmarks.bit_identity --tokens 100          # the default mode: how often the texts part, and at what margin

Stop tokens are ignored, so that every prompt gives the same number of tokens. Heads that are not trained guess nothing right, and every
token would come from the first row of its forward. With --oracle each drafter's tree is merged with a chain that knows the plain text,
as long as the width has room for: then tokens come from every row, and accepted paths run between the drafter's nodes.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import track

from benchmarks.prompts import PROMPTS
from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import Combine, Outcome
from specdec.methods import METHODS, Settings, build
from specdec.models import Transformer, load_model
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms

GREEDY = Sampling(0)
# Trees of at most three nodes, so that they fit the smallest width; a draft of two layers, because only its guesses matter here.
SMALL = Settings(k=3, layers=2, tree=(1, 2), depth=2, beam=2, budget=3, ngram=2, window=1, pool=1)
HALVES = replace(SMALL, k=1, budget=2)  # of a combined tree


@dataclass
class Row:
    """What one drafter did on all prompts.

    parted: prompts whose text is not that of plain decoding; margins: at the first other token of each, how far apart the two
    largest logits of plain decoding were.
    """

    drafter: str
    tokens: int = 0
    parted: int = 0
    margins: tuple[float, ...] = ()
    tokens_per_forward: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Oracle:
    """A drafter that knows the text: the next k tokens of it."""

    text: list[int]
    k: int

    @property
    def max_nodes(self) -> int:
        return self.k

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> Oracle:
        return self

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        return TokenTree.chain(torch.tensor(self.text[len(committed) :][: min(self.k, limit)], dtype=torch.long))

    def observe(self, outcome: Outcome) -> None:
        """It has nothing to learn."""


def measure(target: Transformer, name: str, plain: dict[str, list[int]], tokens: int, width: int | None, oracle: bool) -> Row:
    row, forwards, margins = Row(name), 0, []
    for prompt, expected in track(plain.items(), description=name):
        drafter = build(name, target, HALVES if "+" in name else SMALL)
        if oracle:
            text = target.tokenizer.encode(prompt) + expected
            drafter = Combine(drafter, Oracle(text, (width or 8) - 1 - drafter.max_nodes))
        run = generate(target, prompt, drafter, GREEDY, tokens, width=width)
        row.tokens += len(run.tokens)
        row.seconds += run.stats.seconds
        forwards += run.stats.forwards
        same = next((i for i, (a, b) in enumerate(zip(run.tokens, expected, strict=True)) if a != b), None)
        if same is not None:
            margins.append(margin(target, target.tokenizer.encode(prompt) + expected[:same]))
    row.parted, row.margins, row.tokens_per_forward = len(margins), tuple(margins), row.tokens / forwards
    return row


@torch.inference_mode()
def margin(target: Transformer, text: list[int]) -> float:
    logits = target(torch.tensor([text], device=target.device), target.new_cache(len(text)), rows=1).logits[0, 0]
    first, second = logits.float().topk(2).values
    return float(first - second)


def main(
    width: Annotated[int | None, typer.Option(help="Tokens of every forward; the default mode without.")] = None,
    tokens: Annotated[int, typer.Option(help="For each of the ten prompts.")] = 500,
    methods: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join([*METHODS, "eagle-3+prompt-lookup"]),
    dtype: Annotated[str, typer.Option()] = "bfloat16",
    packed: Annotated[bool, typer.Option(help="On a CPU without bfloat16 products, the packed kernel.")] = True,
    threads: Annotated[int | None, typer.Option()] = None,
    device: Annotated[str, typer.Option()] = "cpu",
    oracle: Annotated[bool, typer.Option(help="Beside each drafter a chain that knows the text.")] = False,
    first: Annotated[int, typer.Option(help="The first prompt,")] = 0,
    last: Annotated[int, typer.Option(help="and the one behind the last: several processes can share the work.")] = len(PROMPTS),
    out: Annotated[Path | None, typer.Option(help="Where to put the figures, as JSON.")] = None,
) -> None:
    """Decode greedily, plainly and with each drafter, and compare."""
    if threads:
        torch.set_num_threads(threads)
    target = load_model("smollm2-135m", device, getattr(torch, dtype), packed=packed)
    mode = f"width = {width}" if width else "default mode"
    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    about = {
        "mode": mode, "oracle": oracle, "prompts": [first, last], "dtype": dtype, "activations": str(target.dtype), "device": name,
        "threads": torch.get_num_threads(),
    }  # fmt: skip
    typer.echo(about)
    chosen = PROMPTS[first:last]
    runs = [generate(target, prompt, None, GREEDY, tokens, width=width) for prompt in track(chosen, description="plain")]
    rows = [Row("plain", sum(len(r.tokens) for r in runs), 0, (), 1.0, sum(r.stats.seconds for r in runs))]
    plain = {prompt: run.tokens for prompt, run in zip(chosen, runs, strict=True)}
    for method in methods.split(","):
        rows.append(measure(target, method, plain, tokens, width, oracle))
        typer.echo(rows[-1])
        if out:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(about | {"rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
