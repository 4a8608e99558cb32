"""The mistakes of chapter 04, each by what it computes: a check names the one that gives all of a student's answers.

Formulas stand here as somebody typed them. They are asked about 0 < α < 1, K > 0 and c > 0; limits have messages of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autograder.checks.core import Mistake

K_MAX = 64  # the default of `optimal_k`
Score = Callable[[float, int, float], float]  # of α, K, c: what a search maximises


def tokens(a: float, k: int) -> float:
    return math.fsum(a**i for i in range(k + 1))


def gain(a: float, k: float, c: float) -> float:
    """The speedup; K may lie between whole numbers."""
    return (1 - a ** (k + 1)) / (1 - a) / (c * k + 1) if a < 1 else (k + 1) / (c * k + 1)


_PARENTHESES = "Count the parentheses: (1 - alpha ** (k + 1)) / (1 - alpha). ** binds first, then / and *, then + and -."

TOKENS = [
    Mistake("α^K instead of α^(K+1)", "K accepted drafts and one token more: the sum has K + 1 terms.", lambda a, k: tokens(a, k - 1)),
    Mistake("the token that every step emits is left out", "The sum begins with α⁰ = 1 at i = 0: range(k + 1).",
            lambda a, k: tokens(a, k) - 1),
    Mistake("the sum begins at α and ends at α^(K+1)", "The first token is always emitted: i runs from 0 to K, range(k + 1).",
            lambda a, k: a * tokens(a, k)),
    Mistake("α^(K+2): one term too many", "The sum ends with α^K: range(k + 1).", lambda a, k: tokens(a, k + 1)),
    Mistake("1 / (1 - α): K is ignored", "That is the limit for endless drafts. The numerator is 1 - α^(K+1).", lambda a, k: 1 / (1 - a)),
    Mistake("the fraction is upside down", "Divide by 1 - α, not by 1 - α^(K+1): τ is at least 1.",
            lambda a, k: (1 - a) / (1 - a ** (k + 1))),
    Mistake("α^K + 1 instead of α^(K+1)", _PARENTHESES, lambda a, k: (1 - a**k + 1) / (1 - a)),
    Mistake("only α^(K+1) is divided, not 1 - α^(K+1)", _PARENTHESES, lambda a, k: 1 - a ** (k + 1) / (1 - a)),
    Mistake("divided by 1, and then α is subtracted", _PARENTHESES, lambda a, k: (1 - a ** (k + 1)) / 1 - a),
    Mistake("without any parentheses", _PARENTHESES, lambda a, k: 1 - a**k + 1 / 1 - a),
    Mistake("(1 - α) is raised, not α", _PARENTHESES, lambda a, k: (1 - a) ** (k + 1) / (1 - a)),
    Mistake("α is multiplied by K + 1, not raised to it", "The power is alpha ** (k + 1).", lambda a, k: (1 - a * (k + 1)) / (1 - a)),
    Mistake("1 - is missing in the numerator", "(1 - α^(K+1)) / (1 - α).", lambda a, k: a ** (k + 1) / (1 - a)),
    Mistake("a plus for a minus in the numerator", "(1 - α^(K+1)) / (1 - α).", lambda a, k: (1 + a ** (k + 1)) / (1 - a)),
    Mistake("a plus for a minus in the denominator", "(1 - α^(K+1)) / (1 - α).", lambda a, k: (1 - a ** (k + 1)) / (1 + a)),
    Mistake("not divided by 1 - α", "(1 - α^(K+1)) / (1 - α).", lambda a, k: 1 - a ** (k + 1)),
    Mistake("divided by α instead of 1 - α", "(1 - α^(K+1)) / (1 - α).", lambda a, k: (1 - a ** (k + 1)) / a),
    Mistake("1 - α in place of α", "alpha is the rate at which drafts are accepted, not the rate of rejections.",
            lambda a, k: tokens(1 - a, k)),
    Mistake("the step in which every draft is accepted is left out", "It has probability α^K and emits K + 1 tokens.",
            lambda a, k: tokens(a, k) - (k + 1) * a**k),
    Mistake("αK + 1: later drafts count only if the earlier ones were accepted", "Token i + 1 needs i acceptances: α^i.",
            lambda a, k: a * k + 1),
    Mistake("αK: neither the earlier drafts nor the last token", "Token i + 1 needs i acceptances, α^i, and one comes without any.",
            lambda a, k: a * k),
    Mistake("α(K + 1): each token counted alone", "Token i + 1 needs i acceptances: α^i.", lambda a, k: a * (k + 1)),
    Mistake("α^K is not summed over the positions", "Sum over i = 0 … K.", lambda a, k: a**k),
    Mistake("α^(K+1) is not summed over the positions", "Sum over i = 0 … K.", lambda a, k: a ** (k + 1)),
    Mistake("(1 + α)^K: a sum of powers is no power of a sum", "Sum over i = 0 … K.", lambda a, k: (1 + a) ** k),
    Mistake("divided by K + 1: the mean over the positions", "τ is the sum itself.", lambda a, k: tokens(a, k) / (k + 1)),
    Mistake("divided by K: the mean over the drafts", "τ is the sum itself.", lambda a, k: tokens(a, k) / k),
    Mistake("always K + 1 tokens", "Only if every draft is accepted.", lambda a, k: k + 1),
    Mistake("rounded to a whole number", "τ is a mean: return it as it is.", lambda a, k: round(tokens(a, k))),
    Mistake("cut to a whole number", "τ is a mean: return it as it is, without int or //.", lambda a, k: int(tokens(a, k))),
    Mistake("rounded to a few digits", "Return it as it is; round only what you print.", lambda a, k: round(tokens(a, k), 2)),
]  # fmt: skip

_COST = "Divide by (c * k + 1): K draft steps at c each and one forward of the target."

SPEEDUP = [
    Mistake("c is ignored", _COST, lambda a, k, c: tokens(a, k)),
    Mistake("the cost is cK: the target's forward is left out", "The target runs once per step: cK + 1.",
            lambda a, k, c: tokens(a, k) / (c * k)),
    Mistake("the cost is c + 1, whatever K is", "The draft runs K times.", lambda a, k, c: tokens(a, k) / (c + 1)),
    Mistake("the cost is c(K + 1) + 1", "The draft runs K times, not K + 1.", lambda a, k, c: tokens(a, k) / (c * (k + 1) + 1)),
    Mistake("the cost is c(K - 1) + 1", "The draft runs K times: the first draft has to be computed too.",
            lambda a, k, c: tokens(a, k) / (c * (k - 1) + 1)),
    Mistake("the cost is K + c: c stands at the target", "c is the cost of a draft step in target forwards.",
            lambda a, k, c: tokens(a, k) / (k + c)),
    Mistake("the cost is cK + K + 1: the target pays for each of its K + 1 positions", "One forward scores all of them, at the price of 1.",
            lambda a, k, c: tokens(a, k) / (c * k + k + 1)),
    Mistake("the cost is (c + 1)K: a target forward for every draft", "The target runs once per step: cK + 1.",
            lambda a, k, c: tokens(a, k) / ((c + 1) * k)),
    Mistake("the cost is (1 + c)^K", "Costs add up, they do not multiply: cK + 1.", lambda a, k, c: tokens(a, k) / (1 + c) ** k),
    Mistake("the cost is c^K + 1", "Costs add up, they do not multiply: cK + 1.", lambda a, k, c: tokens(a, k) / (c**k + 1)),
    Mistake("the cost is K / c + 1", "c is the cost of one draft step: multiply by it.", lambda a, k, c: tokens(a, k) / (k / c + 1)),
    Mistake("the cost is c + K + 1", "K draft steps at c each: multiply.", lambda a, k, c: tokens(a, k) / (c + k + 1)),
    Mistake("the cost is cτ + 1: the draft is paid for what is emitted", "It is paid for all K drafts, rejected ones included.",
            lambda a, k, c: tokens(a, k) / (c * tokens(a, k) + 1)),
    Mistake("τ / cK + 1: parentheses are missing around the cost", _COST, lambda a, k, c: tokens(a, k) / (c * k) + 1),
    Mistake("τ / c · K + 1: parentheses are missing around the cost", _COST, lambda a, k, c: tokens(a, k) / c * k + 1),
    Mistake("τ / c · (K + 1): parentheses are missing around the cost", _COST, lambda a, k, c: tokens(a, k) / c * (k + 1)),
    Mistake("the cost is subtracted", _COST, lambda a, k, c: tokens(a, k) - c * k),
    Mistake("the whole cost is subtracted", _COST, lambda a, k, c: tokens(a, k) - (c * k + 1)),
    Mistake("multiplied by the cost", "Divide: a step that costs more is slower.", lambda a, k, c: tokens(a, k) * (c * k + 1)),
    Mistake("the fraction is upside down", "Tokens over cost: more tokens are faster.", lambda a, k, c: (c * k + 1) / tokens(a, k)),
    Mistake("the gain over plain decoding, not the speedup", "Plain decoding has a speedup of 1: do not subtract it.",
            lambda a, k, c: tokens(a, k) / (c * k + 1) - 1),
    Mistake("the speedup is rounded", "Return it as it is; round only what you print.",
            lambda a, k, c: round(tokens(a, k) / (c * k + 1), 2)),
    *(Mistake(m.name, f"The cost is right, τ is not: {m.hint}", lambda a, k, c, tau=m.variant: tau(a, k) / (c * k + 1)) for m in TOKENS),
]  # fmt: skip


# -- which K a wrong search finds, for all α, c and k_max at once -------------------------------------------------------

Asked = Sequence[tuple[float, float, int]]
TRY_ALL = f"Try every K from 0 to {K_MAX}."


def found_by(score: Score, asked: Asked, start: int = 0) -> list[int]:
    """The smallest K of the largest score."""

    def at(a: float, k: int, c: float) -> float:
        try:
            return score(a, k, c)
        except ZeroDivisionError:  # at K = 0, where the formula as it was typed has no value and plain decoding has 1
            return 1.0

    return [max(range(start, most + 1), key=lambda k: (at(a, k, c), -k), default=start) for a, c, most in asked]


def each(k: Callable[[float, float, int], float]) -> Callable[[Asked], list[int]]:
    return lambda asked: [int(k(*case)) for case in asked]


def _best(a: float, c: float, k_max: int) -> int:
    return found_by(gain, [(a, c, k_max)])[0]


def _best_from_one(a: float, c: float, k_max: int) -> int:
    return found_by(gain, [(a, c, k_max)], start=1)[0]


def _that_gain(a: float, c: float, k_max: int) -> list[int]:
    return [k for k in range(1, k_max + 1) if gain(a, k, c) > 1]


def _between(a: float, c: float, most: float) -> float:
    """The best real K, by thirds: the speedup rises to one top and falls after it."""
    low, high = 0.0, float(most)
    for _ in range(80):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (left, high) if gain(a, left, c) < gain(a, right, c) else (low, right)
    return (low + high) / 2


_NEAREST = f"The best whole K need not be the nearest one. {TRY_ALL}"

C_IGNORED = Mistake("c is ignored: more tokens, not more speed", "Maximise the speedup, not the tokens.",
                    each(lambda a, c, most: most if a > 0 else 0))  # fmt: skip

SEARCHES = [
    Mistake("K = 0, do not speculate, is left out", "Begin at K = 0: its speedup is 1.", each(_best_from_one)),
    Mistake("never speculates: K is always 0", "Compare the speedups of all K, and keep the K of the largest.", each(lambda a, c, most: 0)),
    C_IGNORED,
    Mistake("index off by one: the list begins with K = 1, and its first index is 0", "Begin the list at K = 0, or add 1 to the index.",
            each(lambda *case: _best_from_one(*case) - 1)),
    Mistake("off by one: the K after the best one", "Return the K whose speedup is the largest, not the next one.",
            each(lambda *case: _best(*case) + 1)),
    *(Mistake(f"the optimum over all real K, {how}", _NEAREST, each(lambda a, c, most, to=to: to(_between(a, c, most))))
      for how, to in (("rounded", round), ("rounded down", math.floor), ("rounded up", math.ceil))),
    *(Mistake(f"the optimum over all real K, {how}, and never 0", _NEAREST,
              each(lambda a, c, most, to=to: max(1, to(_between(a, c, most)))))
      for how, to in (("rounded", round), ("rounded down", math.floor))),
    Mistake("the largest K that gains at all, not the fastest", "Keep the K of the largest speedup.",
            each(lambda *case: max(_that_gain(*case), default=0))),
    Mistake("the first K that gains, not the fastest", "Go on: a later K may be faster still.",
            each(lambda *case: min(_that_gain(*case), default=0))),
    Mistake("the slowest K: a minimum for a maximum", "Maximise the speedup.",
            lambda asked: found_by(lambda a, k, c: -gain(a, k, c), asked)),
    Mistake("drafts as long as α^K > c", "A draft must pay more than the step as a whole: compare speedups.",
            each(lambda a, c, most: max((k for k in range(1, most + 1) if a**k > c), default=0))),
    *(Mistake(m.name, f"The speedup in your search is wrong. {m.hint}", lambda asked, score=m.variant: found_by(score, asked))
      for m in SPEEDUP),
]  # fmt: skip
