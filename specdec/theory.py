"""What speculation gains, from closed forms: α the acceptance rate, K the draft length, c the cost of a draft step in target steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Alpha = float | Sequence[float]


def _rates(alpha: Alpha, k: int) -> list[float]:
    """The acceptance rate at each of k positions: one rate for all, or one per position."""
    if k < 0 or int(k) != k:
        raise ValueError(f"k must be a whole number >= 0, got {k}")
    given = [float(a) for a in alpha] if isinstance(alpha, Sequence) else [float(alpha)]
    for rate in given:
        if not 0 <= rate <= 1:
            raise ValueError(f"alpha must lie in [0, 1], got {rate}")
    if isinstance(alpha, Sequence) and len(given) < k:
        raise ValueError(f"k = {k} needs {k} acceptance rates, got {len(given)}")
    return given[:k] if isinstance(alpha, Sequence) else given * k


def expected_tokens(alpha: Alpha, k: int) -> float:
    """τ = 1 + α + … + α^K, the tokens that one target forward emits (Leviathan et al. 2211.17192, equation 1).

    The sum is the closed form (1 - α^{K+1}) / (1 - α) without its 0/0 at α = 1. It supposes that acceptances are independent.
    Given a sequence, alpha[i] is the rate at which drafted token i is accepted once those before it were (measured rates fall
    with depth), and the sum is 1 + α₁ + α₁α₂ + ….
    """
    total, reached = 1.0, 1.0
    for rate in _rates(alpha, k):
        reached *= rate
        total += reached
    return total


def speedup(alpha: Alpha, k: int, c: float, verify_cost: Callable[[int], float] | None = None) -> float:
    """Speed relative to plain decoding: expected_tokens / (c K + r(K)) (2211.17192, theorem 3.8, where r = 1).

    Args:
        verify_cost: r(K), the cost of scoring K drafted tokens and the one before them, in units of a forward of one token. The
            paper's formula takes it as 1. On real hardware it is not: pass what you measured.
    """
    if not 0 <= c < math.inf:
        raise ValueError(f"c must be finite and >= 0, got {c}")
    verify = 1.0 if verify_cost is None or k == 0 else verify_cost(k)
    return expected_tokens(alpha, k) / (c * k + verify)


def optimal_k(
    alpha: Alpha, c: float, k_max: int = 64, verify_cost: Callable[[int], float] | None = None
) -> tuple[int, float]:
    """The draft length with the largest speedup, and that speedup. (0, 1.0) when no draft length gains anything.

    Among equal speedups the shortest draft wins. Some K > 0 helps if and only if α > c (2211.17192, corollary 3.9), with r = 1.
    Without c the question has no answer: expected_tokens only grows with K.
    """
    if k_max < 0:
        raise ValueError(f"k_max must be >= 0, got {k_max}")
    if isinstance(alpha, Sequence):
        k_max = min(k_max, len(alpha))
    return max(((k, speedup(alpha, k, c, verify_cost)) for k in range(k_max + 1)), key=lambda pair: (pair[1], -pair[0]))


def operations_factor(alpha: float, k: int, c_hat: float) -> float:
    """Arithmetic operations relative to plain decoding: (ĉ K + K + 1) / τ (2211.17192, theorem 3.11).

    c_hat is the draft's operations per token over the target's. Above 1: speculation buys latency with operations.
    """
    return (c_hat * k + k + 1) / expected_tokens(alpha, k)


def interpolated_cost(measured: dict[int, float]) -> Callable[[int], float]:
    """A verify cost r(K) from measured forward times {tokens in the forward: seconds}, linear between the points.

    The table must hold the time of a forward of one token, which is the unit. K drafted tokens make a forward of K + 1.
    """
    if 1 not in measured:
        raise ValueError(f"the measured table needs the time of a forward of 1 token, got entries for {sorted(measured)}")
    points = sorted(measured.items())

    def cost(k: int) -> float:
        tokens = k + 1
        if tokens > points[-1][0]:
            raise ValueError(f"k = {k} needs a forward of {tokens} tokens; the table ends at {points[-1][0]}")
        (t0, s0), (t1, s1) = next(
            (left, right) for left, right in zip(points, points[1:] or points) if tokens <= right[0]
        )
        share = (tokens - t0) / (t1 - t0) if t1 > t0 else 0.0
        return (s0 + share * (s1 - s0)) / measured[1]

    return cost
