"""What a forward of fixed shape costs against one of the default mode.

    python -m benchmarks.fixed_shape

All cases take turns, behind 256 tokens in a cache of 640 slots. Run it on a quiet machine.
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
from rich.progress import track

from benchmarks.prompts import PROMPTS
from specdec.models import load_model
from specdec.tree import TokenTree, full_tree

CONTEXT, SLOTS = 256, 640


def layout(width: int) -> dict[str, torch.Tensor]:
    """A root with a tree of two branches behind it, `width` rows in all."""
    tree = TokenTree([0] * (width - 1), full_tree([2] + [1] * (width // 2))[: width - 1])
    mask = torch.nn.functional.pad(tree.mask, (1, 0, 1, 0))
    mask[:, 0] = True
    return {"positions": CONTEXT + torch.cat([torch.zeros(1, dtype=torch.long), tree.depths]), "mask": mask}


@torch.inference_mode()
def main(
    repeats: Annotated[int, typer.Option()] = 15,
    out: Annotated[Path, typer.Option()] = Path("benchmarks/results/fixed_shape.json"),
) -> None:
    """Median seconds of every case, to a JSON file."""
    target = load_model("smollm2-135m")
    text = (target.tokenizer.encode("".join(PROMPTS)) * 3)[: CONTEXT + 16]
    cache, ids = target.new_cache(SLOTS), torch.tensor([text])
    target(ids[:, :CONTEXT], cache, rows=0)
    cases = {("default", 1): {}}
    for width in (4, 8, 16):
        cases[("default", width)] = {}
        cases[("fixed, chain", width)] = {"fixed": True}
        cases[("fixed, tree", width)] = {"fixed": True, **layout(width)}
    seconds = {case: [] for case in cases}
    for _ in track(range(repeats + 1)):
        for case, options in cases.items():
            began = time.perf_counter()
            target(ids[:, CONTEXT : CONTEXT + case[1]], cache, **options)
            seconds[case].append(time.perf_counter() - began)
            cache.rollback(CONTEXT)
    rows = [{"mode": mode, "tokens": n, "ms": 1000 * median(times[1:])} for (mode, n), times in seconds.items()]
    about = {"device": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}", "threads": torch.get_num_threads()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")
    for row in rows:
        typer.echo(f"{row['mode']:<14}{row['tokens']:>3} tokens {row['ms']:7.1f} ms")


if __name__ == "__main__":
    typer.run(main)
