"""Chapter 03: the five functions out of parts, in eight styles, and the mistakes as replaced parts.

Parts are written for numbers of any kind, one by one; a style says of which kind they are, how they are added up, and what is returned.
`add` is the style's sum.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import torch

from autograder.zoo.matrix import Matrix, Mistake

# -- the right parts ---------------------------------------------------------------------------------------------------


def softmax(add, z, T):
    if T == 0:
        return one_hot(z)
    weights = [math.exp((x - max(z)) / T) for x in z]
    total = add(weights)
    return [w / total for w in weights]


def one_hot(z):
    best = [float(x) for x in z].index(float(max(z)))
    return [float(x == best) for x in range(len(z))]


def mixed(p, share, x):
    return [(1 - share) * y + share * (i == x) for i, y in enumerate(p)]


def without(p, x, left=1e-9):
    rest = [left if i == x else y for i, y in enumerate(p)]
    return [y / sum(rest) for y in rest]


def rarest(p):
    return min(range(len(p)), key=lambda x: p[x])


def close(p):
    """Much less accepted than `far`, and with a smaller KL."""
    return mixed(p, 2 * min(p) + 0.02, rarest(p))


def far(p):
    return without(p, rarest(p))


@dataclass(frozen=True)
class Parts:
    overlap: Callable = lambda add, p, q: add([min(a, b) for a, b in zip(p, q)])
    softmax: Callable = softmax
    temperatures: Callable = lambda T, D: (T, D)
    # Of rounds (d drafted, a accepted), and of counts (n judged, a accepted).
    judged: Callable = lambda d, a: min(a + 1, d)
    alpha: Callable = lambda add, counts: add([a for _, a in counts]) / add([n for n, _ in counts])
    error: Callable = lambda add, alpha, counts: 1.96 * (alpha * (1 - alpha) / add([n for n, _ in counts])) ** 0.5
    scatter: Callable = lambda add, alpha, counts: 1.96 * add([(a - alpha * n) ** 2 for n, a in counts]) ** 0.5 / add([n for n, _ in counts])
    scattered: Callable = lambda d, a: min(a + 1, d)
    drafts: Callable = lambda p: (close(p), far(p))


# -- styles ------------------------------------------------------------------------------------------------------------


def loop(values):
    total = 0
    for value in values:
        total += value
    return total


def halves(values):
    """Recursive."""
    if len(values) < 2:
        return values[0] if values else 0
    return halves(values[: len(values) // 2]) + halves(values[len(values) // 2 :])


@dataclass(frozen=True)
class Style:
    vector: Callable = list
    number: Callable = float
    add: Callable = sum
    pair: Callable = tuple


class Solution:
    """An object with its parts as methods, whose bound methods are what is asked for."""

    def __init__(self, style, parts):
        self.style, self.parts = style, parts

    def counts(self, rounds, judged):
        number = self.style.number
        return [(number(judged(d, a)), number(a)) for d, a in rounds]

    def pooled(self, rounds):
        return self.parts.alpha(self.style.add, self.counts(rounds, self.parts.judged))

    def acceptance_rate(self, p, q):
        return self.parts.overlap(self.style.add, self.style.vector(p), self.style.vector(q))

    def alpha_at(self, z, y, T, D):
        T, D = self.parts.temperatures(T, D)
        p, q = (self.style.vector(self.parts.softmax(self.style.add, self.style.vector(x), t)) for x, t in ((z, T), (y, D)))
        return Parts.overlap(self.style.add, p, q)

    def alpha_from_rounds(self, rounds):
        alpha = self.pooled(rounds)
        return self.style.pair([alpha, self.parts.error(self.style.add, alpha, self.counts(rounds, self.parts.judged))])

    def error_by_rounds(self, rounds):
        return self.parts.scatter(self.style.add, self.pooled(rounds), self.counts(rounds, self.parts.scattered))

    def better_kl_worse_alpha(self, p):
        return tuple(map(self.style.vector, self.parts.drafts(list(p))))


ASKED = ("acceptance_rate", "alpha_at", "alpha_from_rounds", "error_by_rounds", "better_kl_worse_alpha")


def written(bound: bool = False, **how: Any) -> Callable:
    """A style of the exercise's functions; `bound`: methods of one object, not functions around it."""

    def functions(**replaced: Any) -> dict[str, Callable]:
        solution = Solution(Style(**how), replace(Parts(), **replaced))
        methods = {name: getattr(solution, name) for name in ASKED}
        return methods if bound else {name: (lambda *given, method=method: method(*given)) for name, method in methods.items()}

    return functions


def float32(values):
    return np.array([float(v) for v in values], dtype=np.float32)


def tensor(values):
    return torch.tensor([float(v) for v in values])


STYLES = {
    "loops": written(add=loop),
    "comprehensions": written(pair=list),
    "recursion": written(add=halves),
    "class": written(bound=True, add=math.fsum),
    "map and reduce": written(add=lambda values: reduce(lambda a, b: a + b, values, 0.0)),
    "numpy": written(vector=np.array, number=np.float64, add=np.sum, pair=np.array),
    "float32": written(vector=float32, number=np.float32, add=lambda values: np.sum(values, dtype=np.float32), pair=float32),
    "torch": written(vector=tensor, number=torch.tensor, add=lambda values: torch.stack(list(map(torch.as_tensor, values))).sum(), pair=tensor),
}

# -- mistakes ----------------------------------------------------------------------------------------------------------


def mistake(check: str, name: str, says: str = "", **parts: Any) -> Mistake:
    return Mistake(name, f"03.{check}", says or name, parts)


def root(x):
    return x**0.5


def judged(counts):
    return sum(n for n, _ in counts)


def softmax_of(change: Callable) -> Callable:
    """With another temperature."""
    return lambda add, z, T: softmax(add, z, change(T))


def unshifted(add, z, T):
    if T == 0:
        return one_hot(z)
    weights = [math.exp(x / T) for x in z]
    return [w / sum(weights) for w in weights]


def last_of_equals(add, z, T):
    if T:
        return softmax(add, z, T)
    return one_hot(list(z)[::-1])[::-1]


MISTAKES = [
    mistake("acceptance_rate", "the total variation, not the acceptance rate", overlap=lambda add, p, q: 1 - add([min(a, b) for a, b in zip(p, q)])),
    mistake("acceptance_rate", "TV without its half", overlap=lambda add, p, q: 1 - add([abs(a - b) for a, b in zip(p, q)])),
    mistake("acceptance_rate", "max for min", "the maximum in place", overlap=lambda add, p, q: add([max(a, b) for a, b in zip(p, q)])),
    mistake("acceptance_rate", "Σ p q", overlap=lambda add, p, q: add([a * b for a, b in zip(p, q)])),
    mistake("acceptance_rate", "the ratios are averaged over p", overlap=lambda add, p, q: add([a * min(1, a / b) for a, b in zip(p, q)])),
    mistake("acceptance_rate", "the ratios are averaged over the vocabulary",
            overlap=lambda add, p, q: add([min(1, a / b) for a, b in zip(p, q)]) / len(p)),
    mistake("acceptance_rate", "the ratio is not cut at 1", overlap=lambda add, p, q: add([b * (a / b) for a, b in zip(p, q)])),
    mistake("acceptance_rate", "q/p in place of p/q", overlap=lambda add, p, q: add([b * min(1, b / a) for a, b in zip(p, q)])),
    mistake("acceptance_rate", "Σ √(p q)", overlap=lambda add, p, q: add([root(a * b) for a, b in zip(p, q)])),
    mistake("acceptance_rate", "e^(-KL)", overlap=lambda add, p, q: math.exp(-sum(float(a) * math.log(a / b) for a, b in zip(p, q)))),
    mistake("acceptance_rate", "the argmaxes agree", "whether the largest entries agree",
            overlap=lambda add, p, q: float(one_hot(list(p)) == one_hot(list(q)))),
    mistake("alpha_at", "the draft gets the target's temperature", temperatures=lambda T, D: (T, T)),
    mistake("alpha_at", "the target gets the draft's temperature", temperatures=lambda T, D: (D, D)),
    mistake("alpha_at", "the two temperatures are exchanged", temperatures=lambda T, D: (D, T)),
    mistake("alpha_at", "the temperature is applied to the target alone", temperatures=lambda T, D: (T, 1)),
    mistake("alpha_at", "the temperature is applied to the draft alone", temperatures=lambda T, D: (1, D)),
    mistake("alpha_at", "the temperature is ignored", temperatures=lambda T, D: (1, 1)),
    mistake("alpha_at", "multiplied by the temperature", softmax=softmax_of(lambda T: 1 / T if T else 0)),
    mistake("alpha_at", "T = 0 divides by zero", softmax=lambda add, z, T: softmax(add, z, T) if T else [x / (T * 0.0) for x in z]),
    mistake("alpha_at", "T = 0 is taken for 1", "wrong at T = 0", softmax=softmax_of(lambda T: T or 1)),
    mistake("alpha_at", "a small temperature is taken for 0", "wrong for large logits or a small temperature",
            softmax=softmax_of(lambda T: T if T > 0.1 else 0)),
    mistake("alpha_at", "a large logit overflows", "the exponential of a large logit overflows", softmax=unshifted),
    mistake("alpha_at", "the last of equal logits", "a tie at T = 0", softmax=last_of_equals),
    mistake("alpha_from_rounds", "accepted over drafted", "accepted over drafted: tokens", judged=lambda d, a: d),
    mistake("alpha_from_rounds", "a full acceptance counts as a rejection too", judged=lambda d, a: a + 1),
    mistake("alpha_from_rounds", "a round without a draft counts as a rejection", judged=lambda d, a: max(1, min(a + 1, d))),
    mistake("alpha_from_rounds", "the rates of the rounds are averaged",
            alpha=lambda add, counts: add([a / n for n, a in counts if n]) / sum(n > 0 for n, _ in counts)),
    mistake("alpha_from_rounds", "accepted tokens for each round", alpha=lambda add, counts: add([a for _, a in counts]) / len(counts),
            error=lambda add, alpha, counts: 0.0),  # the root of α(1 - α) is none
    mistake("alpha_from_rounds", "the share of rejected tokens", alpha=lambda add, counts: 1 - add([a for _, a in counts]) / judged(counts)),
    mistake("alpha_from_rounds", "the error over the rounds", "the error is divided by the number of rounds",
            error=lambda add, alpha, counts: 1.96 * root(alpha * (1 - alpha) / len(counts))),
    mistake("alpha_from_rounds", "the standard error without 1.96", error=lambda add, alpha, counts: root(alpha * (1 - alpha) / judged(counts))),
    mistake("alpha_from_rounds", "2 standard errors, not 1.96", error=lambda add, alpha, counts: 2 * root(alpha * (1 - alpha) / judged(counts))),
    mistake("alpha_from_rounds", "the whole width", "the width of the whole interval",
            error=lambda add, alpha, counts: 3.92 * root(alpha * (1 - alpha) / judged(counts))),
    mistake("alpha_from_rounds", "the root of the variance is missing", error=lambda add, alpha, counts: 1.96 * alpha * (1 - alpha) / judged(counts)),
    mistake("alpha_from_rounds", "N stands outside the root", error=lambda add, alpha, counts: 1.96 * root(alpha * (1 - alpha)) / judged(counts)),
    mistake("error_by_rounds", "the error of a coin", scatter=lambda add, alpha, counts: 1.96 * root(alpha * (1 - alpha) / judged(counts))),
    mistake("error_by_rounds", "the standard error without 1.96",
            scatter=lambda add, alpha, counts: root(add([(a - alpha * n) ** 2 for n, a in counts])) / judged(counts)),
    mistake("error_by_rounds", "2 standard errors, not 1.96",
            scatter=lambda add, alpha, counts: 2 * root(add([(a - alpha * n) ** 2 for n, a in counts])) / judged(counts)),
    mistake("error_by_rounds", "the root is missing",
            scatter=lambda add, alpha, counts: 1.96 * add([(a - alpha * n) ** 2 for n, a in counts]) / judged(counts)),
    mistake("error_by_rounds", "the squares are missing",
            scatter=lambda add, alpha, counts: 1.96 * add([abs(a - alpha * n) for n, a in counts]) / judged(counts)),
    mistake("error_by_rounds", "added before they are squared", "the surpluses are added before",
            scatter=lambda add, alpha, counts: 1.96 * abs(add([a - alpha * n for n, a in counts])) / judged(counts)),
    mistake("error_by_rounds", "divided by the number of rounds",
            scatter=lambda add, alpha, counts: 1.96 * root(add([(a - alpha * n) ** 2 for n, a in counts])) / len(counts)),
    mistake("error_by_rounds", "a - α", "a - α: a round expects",
            scatter=lambda add, alpha, counts: 1.96 * root(add([(a - alpha) ** 2 for n, a in counts])) / judged(counts)),
    mistake("better_kl_worse_alpha", "the two drafts stand in the wrong order", drafts=lambda p: (far(p), close(p))),
    mistake("better_kl_worse_alpha", "the two drafts are the same", drafts=lambda p: (far(p), far(p))),
    mistake("better_kl_worse_alpha", "the first draft has the better α too", drafts=lambda p: (mixed(p, 0.01, 0), mixed(p, 0.9, 0))),
    mistake("better_kl_worse_alpha", "an entry of 0", "the second draft has an entry of 0", drafts=lambda p: (close(p), without(p, rarest(p), 0.0))),
    mistake("better_kl_worse_alpha", "not normalised", "the second draft sums to", drafts=lambda p: (close(p), [2 * y for y in far(p)])),
    mistake("better_kl_worse_alpha", "negative mass", "that is negative", drafts=lambda p: ([p[0] + 5, p[1] - 5, *p[2:]], far(p))),
    mistake("better_kl_worse_alpha", "one draft too short", "the first draft has", drafts=lambda p: (close(p)[:-1], far(p))),
]  # fmt: skip

MATRIX = Matrix("03-acceptance-rate", STYLES, tuple(MISTAKES))
