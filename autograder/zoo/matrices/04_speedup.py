"""Chapter 04: a sum, a cost and a search out of parts, in nine styles, and the mistakes as replaced parts.

A style says how 1 + α + … + α^(n-1) is summed, of what kind the numbers are, and how the best K is looked for. Parts combine what
it gives, and so does a mistake: it is made in the style's own numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from autograder.zoo.matrix import Matrix, Mistake


@dataclass(frozen=True)
class Parts:
    tau: Callable = lambda total, a, k: total(a, k + 1)  # total(a, n): the sum of n powers, from a^0 on
    cost: Callable = lambda c, k: c * k + 1
    speed: Callable = lambda tau, cost: tau / cost
    # The rest is the search's.
    tried: Callable = lambda k_max: range(k_max + 1)
    score: Callable | None = None  # score(total, a, k, c); None: the speedup
    last: bool = False  # of equals
    chosen: Callable = lambda k: k
    result: Callable = lambda k, speed, tau: (k, speed)


# -- styles: how to sum ------------------------------------------------------------------------------------------------


def loop(a, n):
    total = power = a * 0
    power = power + 1
    for _ in range(n):
        total, power = total + power, power * a
    return total


def comprehension(a, n):
    return sum(a**i for i in range(n))


def closed_form(a, n):
    return a * 0 + n if a == 1 else (1 - a**n) / (1 - a)


@lru_cache(maxsize=10_000)
def recursion(a, n):
    return 1 + a * recursion(a, n - 1) if n > 0 else a * 0


def powers(a, n):
    return np.power(a, np.arange(n)).sum()


def running(a, n):
    return torch.cumprod(torch.cat([torch.ones(1, dtype=a.dtype), a.repeat(max(0, n - 1))]), 0)[:n].sum()


# -- styles: how to search ---------------------------------------------------------------------------------------------


def by_max(score: Callable, tried: Sequence[int], last: bool) -> int:
    return max(reversed(tried) if last else tried, key=score)


def by_loop(score, tried, last):
    best = tried[0]
    for k in tried[1:]:
        if score(k) > score(best) or (last and score(k) == score(best)):
            best = k
    return best


def climb(score, tried, last):
    at = 0
    while at + 1 < len(tried) and (score(tried[at + 1]) > score(tried[at]) or (last and score(tried[at + 1]) == score(tried[at]))):
        at += 1
    return tried[at]


def argmax(score, tried, last):
    scores = np.array([float(score(k)) for k in tried])
    return tried[len(tried) - 1 - int(scores[::-1].argmax())] if last else tried[int(scores.argmax())]


def by_sorting(score, tried, last):
    return sorted(tried, key=lambda k: (score(k), k if last else -k))[-1]


class Speculation:
    """The three functions as methods of one object."""

    def __init__(self, parts: Parts, total: Callable, number: Callable, search: Callable):
        self.parts, self.total, self.number, self.search = parts, total, number, search

    def expected_tokens(self, alpha, k):
        return self.parts.tau(self.total, self.number(alpha), k)

    def speedup(self, alpha, k, c):
        return self.parts.speed(self.expected_tokens(alpha, k), self.parts.cost(self.number(c), k))

    def optimal_k(self, alpha, c, k_max=64):
        def score(k):
            if self.parts.score:
                return self.parts.score(self.total, self.number(alpha), k, self.number(c))
            return self.speedup(alpha, k, c)

        k = self.parts.chosen(self.search(score, list(self.parts.tried(k_max)) or [0], self.parts.last))
        k = max(0, k)
        return self.parts.result(k, self.speedup(alpha, k, c), self.expected_tokens(alpha, k))


def written(total: Callable, number: Callable = float, search: Callable = by_max, methods: bool = False) -> Callable:
    def functions(**replaced: Any) -> dict[str, Callable]:
        it = Speculation(replace(Parts(), **replaced), total, number, search)
        if methods:
            return {"expected_tokens": it.expected_tokens, "speedup": it.speedup, "optimal_k": it.optimal_k}
        return {
            "expected_tokens": lambda alpha, k: it.expected_tokens(alpha, k),
            "speedup": lambda alpha, k, c: it.speedup(alpha, k, c),
            "optimal_k": lambda alpha, c, k_max=64: it.optimal_k(alpha, c, k_max),
        }

    return functions


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


STYLES = {
    "loops": written(loop, search=by_loop),
    "sums": written(comprehension),
    "closed form": written(closed_form, methods=True),
    "recursion": written(recursion, search=climb),
    "numpy": written(powers, np.float64, argmax),
    "float32": written(comprehension, np.float32, by_loop),
    "float32 closed form": written(closed_form, np.float32, climb),
    "fractions": written(comprehension, lambda x: Fraction(x).limit_denominator(10**9), by_sorting),  # powers of all 53 bits take long
    "torch": written(running, tensor, by_loop, methods=True),
}

# -- mistakes ----------------------------------------------------------------------------------------------------------


def mistake(check: str, name: str, says: str = "", **parts: Any) -> Mistake:
    styles = parts.pop("styles", ())
    return Mistake(name, f"04.{check}", says or name, parts, tuple(styles), parts.pop("unnamed", {}))


def tau(name: str, formula: Callable, says: str = "") -> Mistake:
    return mistake("expected_tokens", name, says, tau=formula)


def cost(name: str, formula: Callable, says: str = "") -> Mistake:
    return mistake("speedup", name, says, cost=formula)


def below_one(formula: Callable) -> Callable:
    """As typed, with the limit at α = 1 looked after."""
    return lambda total, a, k: formula(a, k) if a < 1 else a * 0 + k + 1


MISTAKES = [
    tau("α^K instead of α^(K+1)", lambda total, a, k: total(a, k)),
    tau("the token that every step emits is left out", lambda total, a, k: total(a, k + 1) - 1),
    tau("the sum begins at α", lambda total, a, k: a * total(a, k + 1)),
    tau("α^(K+2)", lambda total, a, k: total(a, k + 2)),
    tau("K is ignored", below_one(lambda a, k: 1 / (1 - a))),
    tau("upside down", lambda total, a, k: 1 / total(a, k + 1)),
    tau("α^K + 1 instead of α^(K+1)", below_one(lambda a, k: (1 - a**k + 1) / (1 - a))),
    tau("only α^(K+1) is divided", below_one(lambda a, k: 1 - a ** (k + 1) / (1 - a))),
    tau("not divided by 1 - α", lambda total, a, k: 1 - a ** (k + 1)),
    tau("1 - α in place of α", lambda total, a, k: total(1 - a, k + 1)),
    tau("αK + 1", lambda total, a, k: a * k + 1),
    tau("α^K is not summed", lambda total, a, k: a**k),
    tau("always K + 1 tokens", lambda total, a, k: a * 0 + k + 1),
    tau("cut to a whole number", lambda total, a, k: int(total(a, k + 1))),
    tau("an α near 1 is treated as 1", lambda total, a, k: a * 0 + k + 1 if a > 0.99 else total(a, k + 1), "is treated as 1"),
    cost("c is ignored", lambda c, k: 1),
    cost("the target's forward is left out", lambda c, k: c * k or 1),
    cost("the cost is c + 1, whatever K is", lambda c, k: c + 1),
    cost("the cost is c(K + 1) + 1", lambda c, k: c * (k + 1) + 1),
    cost("the cost is K + c", lambda c, k: c + k or 1),
    cost("the target pays for each of its K + 1 positions", lambda c, k: c * k + k + 1),
    cost("a target forward for every draft", lambda c, k: (c + 1) * k or 1),
    cost("the cost is (1 + c)^K", lambda c, k: (1 + c) ** k),
    mistake("speedup", "multiplied by the cost", speed=lambda tau, cost: tau * cost),
    mistake("speedup", "the whole cost is subtracted", speed=lambda tau, cost: tau - cost),
    mistake("speedup", "upside down", speed=lambda tau, cost: cost / tau),
    mistake("speedup", "the gain over plain decoding", speed=lambda tau, cost: tau / cost - 1),
    mistake("speedup", "τ with α^K", "α^K instead of α^(K+1)", tau=lambda total, a, k: total(a, k)),
    mistake("optimal_k", "K = 0, do not speculate, is left out", tried=lambda k_max: range(1, k_max + 1)),
    mistake("optimal_k", "k_max itself is never tried", tried=lambda k_max: range(k_max)),
    mistake("optimal_k", "k_max is ignored", tried=lambda k_max: range(65)),
    mistake("optimal_k", "k_max + 1 is tried", tried=lambda k_max: range(k_max + 2)),
    mistake("optimal_k", "the search stops too early", tried=lambda k_max: range(min(k_max, 10) + 1)),
    mistake("optimal_k", "the largest of equals", "not the smallest of several equally fast K", last=True),
    mistake("optimal_k", "index off by one", tried=lambda k_max: range(1, k_max + 1), chosen=lambda k: k - 1),
    mistake("optimal_k", "the K after the best one", chosen=lambda k: k + 1),
    mistake("optimal_k", "more tokens, not more speed", score=lambda total, a, k, c: total(a, k + 1)),
    mistake("optimal_k", "the search has α^K", "α^K instead of α^(K+1)", score=lambda total, a, k, c: total(a, k) / (c * k + 1)),
    mistake("optimal_k", "the search has K + 1 drafts", "the cost is c(K + 1) + 1",
            score=lambda total, a, k, c: total(a, k + 1) / (c * (k + 1) + 1)),
    mistake("optimal_k", "τ beside K", "the speedup beside K is wrong: it is τ", result=lambda k, speed, tau: (k, tau)),
    mistake("optimal_k", "K alone", "did not return the pair", result=lambda k, speed, tau: k),
    mistake("optimal_k", "K and the speedup exchanged", "did not return the pair", result=lambda k, speed, tau: (speed, k)),
]  # fmt: skip

MATRIX = Matrix("04-speedup", STYLES, tuple(MISTAKES))
