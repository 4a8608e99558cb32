"""What a forward costs: the time of T tokens at once, and that of its matrix products alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import torch

from specdec.models import Transformer
from specdec.models.linear import Linear

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
Case = TypeVar("Case")


@dataclass(frozen=True)
class ForwardCost:
    """Seconds of a forward, and of its products (every `Linear` once, the LM head among them) on numbers that lie ready."""

    seconds: float
    products: float


def forward_costs(
    target: Transformer, widths: Sequence[int] = WIDTHS, context: int = 256, repeats: int = 15
) -> dict[int, ForwardCost]:
    """Medians for T new tokens behind `context` cached ones, for each T of `widths` that the model's context has room for behind at least
    one; fewer are cached where it is too short. All cases take turns."""
    longest = target.config.max_length
    widths = [width for width in widths if width < longest]
    context = min(context, longest - max(widths))
    cache = target.new_cache(context + max(widths))
    ids = torch.arange(context + max(widths), device=target.device)[None] % target.config.vocab_size

    def forward(width: int) -> None:
        target(ids[:, context : context + width], cache)
        cache.rollback(context)

    cases: dict[tuple[str, int], Callable[[], object]] = {("forward", w): lambda w=w: forward(w) for w in widths}
    cases |= {("products", w): _products(target, w) for w in widths}
    with torch.inference_mode():
        target(ids[:, :context], cache, rows=0)
        seconds = {case: median(times) for case, times in seconds_of(cases, repeats, target.device).items()}
    return {w: ForwardCost(seconds["forward", w], seconds["products", w]) for w in widths}


def _products(target: Transformer, T: int) -> Callable[[], object]:
    """Every linear layer of the model once, on T rows."""
    config, c = target.config, {"device": target.device, "dtype": target.dtype}
    inner = {"out": config.heads * config.head_dim, "down": config.ffn_size}
    linears = [(name.rpartition(".")[-1], m) for name, m in target.named_modules() if isinstance(m, Linear)]
    calls = [(module, torch.randn(1, T, inner.get(name, config.hidden_size), **c)) for name, module in linears]
    return lambda: [module(x) for module, x in calls]


def product_seconds(target: Transformer, T: int, repeats: int) -> list[float]:
    """Seconds of every linear layer of the model once on T rows, several times."""
    with torch.inference_mode():
        return seconds_of({T: _products(target, T)}, repeats, target.device)[T]


def seconds_of(cases: Mapping[Case, Callable[[], object]], repeats: int, device: torch.device) -> dict[Case, list[float]]:
    """Seconds of every case, `repeats` times. They take turns; a first turn warms up and does not count. Where a device works on, the clock
    waits for it."""
    seconds: dict[Case, list[float]] = {case: [] for case in cases}
    for _ in range(repeats + 1):
        for case, call in cases.items():
            began = time.perf_counter()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds[case].append(time.perf_counter() - began)
    return {case: times[1:] for case, times in seconds.items()}
