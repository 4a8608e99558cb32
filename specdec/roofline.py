"""What a forward costs before anybody runs it: its operations and bytes, and the time that a machine needs for them at least.

The roofline (Williams et al. 2009): numbers must be moved and computed with. The two overlap at best, so that the slower one sets the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specdec.config import Config
from specdec.forwards import product_seconds, seconds_of
from specdec.models import Transformer


@dataclass(frozen=True)
class Machine:
    """bandwidth: bytes/s that its memory delivers; rate: operations/s of its matrix products (a multiplication and an addition are two);
    memory: bytes, 0 where it does not matter."""

    bandwidth: float
    rate: float
    memory: float = 0

    def __post_init__(self) -> None:
        if not (self.bandwidth > 0 and self.rate > 0 and self.memory >= 0):
            raise ValueError(f"bandwidth and rate must be > 0 and memory >= 0, got {self}")

    @property
    def ridge(self) -> float:
        """Operations that it computes while it moves one byte."""
        return self.rate / self.bandwidth

    def free_tokens(self, bits: float = 16) -> float:
        """n*: so many tokens of one forward take as long to compute as the weights take to come. Each weight is two operations a token."""
        return self.ridge * bits / 8 / 2

    def seconds(self, work: Work) -> float:
        """No forward is faster."""
        return max(work.bytes / self.bandwidth, work.operations / self.rate)


@dataclass(frozen=True)
class Work:
    """operations of a forward, and the bytes that it must move."""

    operations: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.operations / self.bytes


def forward_work(config: Config, new: int = 1, cached: int = 0, batch: int = 1, bits: float = 16) -> Work:
    """Of a forward of `new` tokens for each of `batch` texts, behind `cached` tokens of each, with `bits` bits a weight.

    Each weight comes once, and is multiplied and added once for each token. Keys and values, 16 bits each, come once for each text; a head
    takes two products of head_dim numbers for each cached token. What is small beside these is left out: norms, the new tokens' own
    keys and values, activations.
    """
    weights, tokens = config.weights(), batch * new
    attention = 4 * config.layers * config.heads * config.head_dim * cached
    return Work((2 * weights + attention) * tokens, weights * bits / 8 + config.kv_bytes(cached, batch))


def memory_bandwidth(device: torch.device | str = "cpu", megabytes: int = 512, repeats: int = 5) -> float:
    """Bytes/s: the best of some readings of a block that no cache holds."""
    x = torch.ones(megabytes * 2**18, device=device)
    halves = x.chunk(2)
    with torch.inference_mode():
        seconds = seconds_of({"sum": x.sum, "dot": lambda: torch.dot(*halves)}, repeats, x.device)
    return x.nbytes / min(min(times) for times in seconds.values())


def product_rate(target: Transformer, rows: int = 256, repeats: int = 3) -> float:
    """Operations/s of the model's own matrix products on so many rows: the best of some runs."""
    return 2 * target.config.weights() * rows / min(product_seconds(target, rows, repeats))


def measured(target: Transformer) -> Machine:
    """The machine on which the model lies; it takes a few seconds."""
    return Machine(memory_bandwidth(target.device), product_rate(target))


# Published figures: the vendors' data sheets, products of 16-bit numbers without sparsity.
MACHINES = {
    "A100 80 GB": Machine(2.039e12, 312e12, 80e9),
    "H100 SXM": Machine(3.35e12, 989e12, 80e9),
    "L4": Machine(0.3e12, 121e12, 24e9),
    "RTX 4090": Machine(1.008e12, 165e12, 24e9),
}

_LLAMA_3 = {"vocab_size": 128_256, "head_dim": 128, "max_length": 131_072, "kv_heads": 8}
# Published shapes, from the models' own config.json.
MODELS = {
    "SmolLM2-135M": Config(49_152, 576, 30, 9, 3, 64, 1536, 8192),
    "Llama-3.2-1B": Config(**{**_LLAMA_3, "head_dim": 64}, hidden_size=2048, layers=16, heads=32, ffn_size=8192),
    "Llama-2-7B": Config(32_000, 4096, 32, 32, 32, 128, 11_008, 4096, tied=False),
    "Llama-3.1-8B": Config(**_LLAMA_3, hidden_size=4096, layers=32, heads=32, ffn_size=14_336, tied=False),
    "Llama-2-13B": Config(32_000, 5120, 40, 40, 40, 128, 13_824, 4096, tied=False),
    "Qwen3-32B": Config(151_936, 5120, 64, 64, 8, 128, 25_600, 40_960, tied=False, qk_norm=True),
    "Llama-3.1-70B": Config(**_LLAMA_3, hidden_size=8192, layers=80, heads=64, ffn_size=28_672, tied=False),
}
