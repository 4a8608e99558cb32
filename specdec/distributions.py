"""Probability vectors: how logits become p and q, and the few operations that speculative decoding needs on them.

Everything works on the last axis, batched over the others, on any device. Half precision is widened to float32 before
anything is subtracted or summed; float64 stays float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.config import check_whole, is_number
from specdec.device import on_host

_WIDE = (torch.float32, torch.float64)
# By less float32 cannot divide: 1 / T is infinite, or T is 0. By more T is infinite, or 1 / T is 0, and a logit of -inf becomes NaN.
_COLDEST, _HOTTEST = torch.finfo(torch.float32).tiny, 1e37


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype in _WIDE else x.float()


def _normalised(x: Tensor) -> Tensor:
    return x / x.sum(-1, keepdim=True)


def _pair(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    if p.shape[-1] != q.shape[-1]:
        raise ValueError(f"p and q must have the same vocabulary size, got {p.shape[-1]} and {q.shape[-1]}")
    return _wide(p), _wide(q)


@dataclass(frozen=True)
class Sampling:
    """How a distribution is made from logits; target and draft must share it, or the draft declares the wrong q.

    Filters apply in the order temperature, top_k, top_p, min_p, each on the renormalised result of the one before.

    Args:
        temperature: 0 means greedy: all mass on the argmax, the lowest id on ties. So does what float32 cannot divide by, below 1.2e-38.
        top_k: keep the k most probable tokens.
        top_p: keep the smallest set of most probable tokens whose mass reaches top_p (Holtzman et al. 2019, section 3.1).
        min_p: keep tokens with at least min_p times the largest probability.

    Raises:
        ValueError: if a value lies outside its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        if not is_number(self.temperature) or not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be a finite number >= 0, got {self.temperature!r}")
        if self.top_k is not None:
            check_whole("top_k", self.top_k, 1)
        if self.top_p is not None and not (is_number(self.top_p) and 0 < self.top_p <= 1):
            raise ValueError(f"top_p must be a number in (0, 1], got {self.top_p!r}")
        if self.min_p is not None and not (is_number(self.min_p) and 0 <= self.min_p <= 1):
            raise ValueError(f"min_p must be a number in [0, 1], got {self.min_p!r}")

    @property
    def greedy(self) -> bool:
        return self.temperature < _COLDEST

    def probabilities(self, logits: Tensor) -> Tensor:
        """Logits (..., V) → probabilities (..., V), float32 (float64 if the logits are).

        A logit may be -inf. A row that has a NaN or a +inf, or is all -inf, has no distribution: its probabilities have a NaN at
        every temperature, and `inverse_cdf` tells of it.
        """
        logits = _wide(logits)
        if self.greedy:
            best = argmax(logits)
            return torch.zeros_like(logits).scatter(
                -1, best, logits.gather(-1, best) * 0 + 1
            )  # NaN in place of 1 where there is none
        if self.temperature != 1:  # the maximum goes first: divided by a tiny temperature, two numbers would both be infinite
            logits = (logits - logits.amax(-1, keepdim=True)) / min(self.temperature, _HOTTEST)
        probs = logits.softmax(-1)
        top_p = None if self.top_p == 1 else self.top_p  # rounding would cut the tail
        top_k = min(int(self.top_k or probs.shape[-1]), probs.shape[-1])
        if top_k < probs.shape[-1] or top_p is not None:
            probs = _normalised(_most_probable(probs, top_k, top_p))
        if self.min_p is not None:
            probs = _normalised(probs.masked_fill(probs < self.min_p * probs.amax(-1, keepdim=True), 0))
        return probs


def _most_probable(probs: Tensor, top_k: int, top_p: float | None) -> Tensor:
    """probs (..., V) with all but the most probable tokens set to 0: top_k of them, and of those the fewest whose share of their
    mass reaches top_p. Equal probabilities are kept from the lowest id on, so that target and draft cut them in the same place."""
    # A full sort costs a CPU more than the rest of a round. It looks at the largest few first, and asks whether they are enough.
    V, may_ask = probs.shape[-1], on_host(probs.device)
    asks = may_ask and top_k == V
    n = min(256, V) if asks else min(top_k + 1, V)  # one more than is kept: it tells a tie
    ranked = probs.topk(n).values
    while asks and n < V and (ranked.sum(-1) < top_p).any():
        n = min(8 * n, V)
        ranked = probs.topk(n).values
    first = ranked[..., :top_k]
    count = torch.full_like(probs[..., :1], top_k, dtype=torch.long)  # (..., 1), how many are kept
    if top_p is not None:
        whole = first.sum(-1, keepdim=True) if top_k < V else 1.0
        count = (first.cumsum(-1) - first < top_p * whole).sum(-1, keepdim=True).clamp_min(1)
    least = first.gather(-1, count - 1)
    below = probs < least
    tie = (count == n) & (n < V) | (count < n) & (ranked.gather(-1, count.clamp_max(n - 1)) == least)
    if may_ask and not tie.any():
        return probs.masked_fill(below, 0)
    equal, room = probs == least, count - (probs > least).sum(-1, keepdim=True)
    return probs.masked_fill(below | (equal & (equal.cumsum(-1) > room)), 0)


def argmax(x: Tensor) -> Tensor:
    """x (..., V) → (..., 1) int64: where the largest number stands, the lowest index on ties; a NaN counts as the largest."""
    if on_host(x.device) and x.dtype in _WIDE:  # PyTorch's own takes eight times as long on a CPU
        return torch.from_numpy(x.numpy().argmax(-1, keepdims=True))
    return x.argmax(-1, keepdim=True)


def greedy_choice(logits: Tensor) -> int:
    """`Sampling(0)`'s only token of one row of logits (V,), on the host; V, which is no token, where there is none."""
    best = int(argmax(logits))
    return best if math.isfinite(logits[best]) else len(logits)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm((p - q)₊), the distribution of the token that replaces a rejected one (Leviathan et al. 2211.17192, section 2.3).

    p, q: (..., V) → (..., V). Where (p - q)₊ has no mass, p = q, a rejection is impossible, and p itself is returned, so that
    the result is a distribution in any precision and never NaN.
    """
    p, q = _pair(p, q)
    excess = (p - q).clamp_min(0)
    mass = excess.sum(-1, keepdim=True)
    return torch.where(mass > 0, excess / mass.clamp_min(torch.finfo(mass.dtype).tiny), p)


def acceptance_rate(p: Tensor, q: Tensor) -> Tensor:
    """β = Σ min(p, q), the probability that a token drawn from q is accepted (2211.17192, theorem 3.5). (..., V) → (...)."""
    p, q = _pair(p, q)
    return torch.minimum(p, q).sum(-1)


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """TV(p, q) = ½ Σ |p - q| = 1 - acceptance_rate(p, q) for normalised p and q. (..., V) → (...), in [0, 1]."""
    p, q = _pair(p, q)
    return (p - q).abs().sum(-1) / 2


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p‖q) = Σ p log(p / q) in nats; 0 log 0 = 0, and infinite where p has mass and q has none. (..., V) → (...)."""
    p, q = _pair(p, q)
    terms = torch.where(p > 0, p * (p.log() - q.log()), torch.zeros_like(p))
    return terms.sum(-1)


def inverse_cdf(probabilities: Tensor, u: Tensor) -> Tensor:
    """The token at which the cumulative sum first exceeds u: a draw from `probabilities` if u is uniform in [0, 1).

    probabilities (..., V), not necessarily normalised to the last bit; u (...) → token ids (...), int64. The sum runs in
    float64, and a token of probability 0 is never returned. A row with a NaN gives V, which is no token.
    """
    cdf = probabilities.double().cumsum(-1)
    total = cdf[..., -1:].contiguous()
    token = torch.searchsorted(cdf, u.double().unsqueeze(-1) * total, right=True)
    # u * total may round up to total itself; the last token that has mass is then the answer.
    last = torch.searchsorted(cdf, total)
    return torch.minimum(token, last).squeeze(-1)
