"""Tests of "these samples come from that distribution" that state both of their error rates.

A test that fails one right program in twenty (p > 0.05) is not a test of the program. Each function here takes the false-fail
rate it may have, and its result says how large a discrepancy (in total variation) it is sure to see at the same rate.
Compare with the exact distribution: noisy counts used as if they were expectations raise 43 % false alarms at a nominal 5 %.

Plain Python: nothing here needs more than the standard library but `chi_square`, which needs scipy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Equivalence:
    """The outcome of an equivalence test.

    statistic, threshold: the test passes while statistic <= threshold.
    false_fail: the probability of failing although the distributions are equal (a bound, or asymptotic for chi-square).
    detectable_tv: a discrepancy of at least this total variation is missed with probability at most false_fail.
    tv, kl: empirical total variation and KL(p̂‖p), nats, as observed. Both are above 0 for a perfect sampler.
    """

    passed: bool
    statistic: float
    threshold: float
    false_fail: float
    detectable_tv: float
    tv: float
    kl: float
    samples: int
    cells: int

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return (
            f"{'equal' if self.passed else 'DIFFERENT'}: statistic {self.statistic:.1f}, threshold {self.threshold:.1f} "
            f"({self.samples} samples, {self.cells} cells, TV {self.tv:.4f}, KL {self.kl:.2e}; fails a right program with "
            f"probability {self.false_fail:.0e}, sees any TV >= {self.detectable_tv:.3f})"
        )


def goodness_of_fit(counts: Sequence[float], probabilities: Sequence[float], false_fail: float = 1e-9) -> Equivalence:
    """Likelihood-ratio test G = 2 N KL(p̂‖p) with a bound that holds for every sample size, rare cells included.

    P(N KL(p̂‖p) >= t) <= e^{-t} (e t / (k - 1))^{k - 1} for t >= k - 1 (Agrawal, arXiv 1904.02291, theorem 1.2), k cells. A
    sample in a cell of probability 0 fails at once.

    Args:
        counts: (k,) how often each outcome came.
        probabilities: (k,) exact probabilities, summing to 1.

    Raises:
        ValueError: on shapes that differ, negative or empty counts, or probabilities that do not sum to 1.
    """
    counts, probabilities = _checked(counts, probabilities, false_fail)
    samples = sum(counts)
    threshold = 2 * agrawal_threshold(_cells(probabilities), false_fail)
    kl = _kl([n / samples for n in counts], probabilities)
    pass_radius = math.sqrt(threshold / (4 * samples))  # G <= threshold implies this TV, by Pinsker
    return _equivalence(counts, probabilities, 2 * samples * kl, threshold, pass_radius, false_fail)


def chi_square(counts: Sequence[float], probabilities: Sequence[float], false_fail: float = 1e-9) -> Equivalence:
    """Pearson's chi-square test, rare cells merged until each expects 5 samples or more.

    Without the merging a nominal 1e-4 became 7.5e-3 with 20 cells of expectation 0.5. The level is asymptotic; where a
    guarantee is wanted take `goodness_of_fit`. Arguments and errors as there.
    """
    from scipy import stats

    counts, probabilities = _checked(counts, probabilities, false_fail)
    samples = sum(counts)
    observed, expected = _merge_rare(counts, [p * samples for p in probabilities])
    impossible = any(n > 0 and p == 0 for n, p in zip(counts, probabilities))
    statistic = math.inf if impossible else sum((o - e) ** 2 / e for o, e in zip(observed, expected))
    threshold = float(stats.chi2.isf(false_fail, max(1, len(observed) - 1)))
    pass_radius = math.sqrt(threshold / (2 * samples))  # since chi-square >= N KL; over the merged cells
    return _equivalence(counts, probabilities, statistic, threshold, pass_radius, false_fail)


def agrawal_threshold(cells: int, false_fail: float) -> float:
    """The smallest t with e^{-t} (e t / (k - 1))^{k - 1} <= false_fail: N KL(p̂‖p) exceeds it no more often than that."""
    free = cells - 1
    if free < 1:
        return 0.0

    def log_excess(t: float) -> float:
        return -t + free * (1 + math.log(t / free)) - math.log(false_fail)

    lower = upper = free + 1.0
    while log_excess(upper) > 0:
        lower, upper = upper, 2 * upper
    while (middle := (lower + upper) / 2) not in (lower, upper):  # down to neighbouring floats
        lower, upper = (middle, upper) if log_excess(middle) > 0 else (lower, middle)
    return upper


def sampling_radius(samples: float, cells: int, rate: float) -> float:
    """The total variation between p̂ and its own distribution that is exceeded with probability at most `rate` (Pinsker)."""
    return math.sqrt(agrawal_threshold(cells, rate) / (2 * samples))


def samples_needed(tv: float, cells: int, false_fail: float = 1e-9) -> int:
    """The sample size from which `goodness_of_fit` misses a discrepancy of `tv` with probability at most false_fail.

    A passing p̂ lies within one `sampling_radius` of the reference, and all but surely within one of its own distribution: a
    discrepancy above the sum of both cannot pass unseen.
    """
    if not 0 < tv <= 1:
        raise ValueError(f"tv must lie in (0, 1], got {tv}")
    return math.ceil(2 * agrawal_threshold(cells, false_fail) / tv**2)


def expected_tv(probabilities: Sequence[float], samples: int) -> float:
    """The total variation that a perfect sampler shows on average: ½ Σ E|p̂ - p| ≈ Σ √(p (1 - p) / (2 π N)).

    The noise floor below which a demand such as "TV < 0.01" fails right programs.
    """
    return sum(math.sqrt(float(p) * (1 - float(p)) / (2 * math.pi * samples)) for p in probabilities)


def _checked(counts: Sequence[float], probabilities: Sequence[float], false_fail: float) -> tuple[list[float], list[float]]:
    try:
        counts, probabilities = [float(n) for n in counts], [float(p) for p in probabilities]
    except (TypeError, ValueError):
        raise ValueError("counts and probabilities must both be (k,), sequences of numbers") from None
    if len(counts) != len(probabilities):
        raise ValueError(f"counts and probabilities must both be (k,), got ({len(counts)},) and ({len(probabilities)},)")
    if not all(n >= 0 for n in counts) or sum(counts) == 0:
        raise ValueError("counts must be >= 0 and not all 0")
    if not all(p >= 0 for p in probabilities) or not abs(sum(probabilities) - 1) <= 1e-6:
        raise ValueError(f"probabilities must be >= 0 and sum to 1, got a sum of {sum(probabilities)}")
    if not 0 < false_fail < 1:
        raise ValueError(f"false_fail must lie in (0, 1), got {false_fail}")
    return counts, probabilities


def _cells(probabilities: list[float]) -> int:
    return sum(p > 0 for p in probabilities)


def _kl(empirical: list[float], probabilities: list[float]) -> float:
    seen = [(e, p) for e, p in zip(empirical, probabilities) if e > 0]
    return math.inf if any(p == 0 for _, p in seen) else sum(e * math.log(e / p) for e, p in seen)


def _merge_rare(observed: list[float], expected: list[float], least: float = 5.0) -> tuple[list[float], list[float]]:
    """Cells with the smallest expectations are pooled until the pool and every other cell expects `least`."""
    order = sorted(range(len(expected)), key=expected.__getitem__)
    observed, expected = [observed[i] for i in order], [expected[i] for i in order]
    pooled = sum(e < least for e in expected)
    if pooled == 0:
        return observed, expected
    if sum(expected[:pooled]) < least:
        pooled += 1  # the next cell alone expects `least`, so one is enough
    return [sum(observed[:pooled]), *observed[pooled:]], [sum(expected[:pooled]), *expected[pooled:]]


def _equivalence(
    counts: list[float], probabilities: list[float], statistic: float, threshold: float, pass_radius: float, false_fail: float
) -> Equivalence:
    samples, cells = sum(counts), _cells(probabilities)
    empirical = [n / samples for n in counts]
    return Equivalence(
        passed=statistic <= threshold,
        statistic=statistic,
        threshold=threshold,
        false_fail=false_fail,
        detectable_tv=min(1.0, pass_radius + sampling_radius(samples, cells, false_fail)),
        tv=sum(abs(e - p) for e, p in zip(empirical, probabilities)) / 2,
        kl=_kl(empirical, probabilities),
        samples=int(samples),
        cells=cells,
    )
