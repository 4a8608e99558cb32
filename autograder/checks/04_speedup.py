"""Checks of chapter 04: the closed forms against exact fractions, and the best K against all K."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

from autograder.checks.core import Mistake, Result, Wrong, call, register
from autograder.inside.plain import number, shown, whole

CLOSE = 1e-6  # relative; 1 - α loses this much for α = 1 - 1e-9, and no mistake comes so near
K_MAX = 64
TIE = 1e-12  # relative; with c = 0 the gains of long drafts differ by less than a float can show
ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
COSTS = (0.01, 0.02, 0.05, 0.1, 0.2)


def tokens(alpha: float, k: int) -> Fraction:
    """1 + α + … + α^K, exactly."""
    return sum(Fraction(alpha) ** i for i in range(k + 1))


def gain(alpha: float, k: int, c: float) -> Fraction:
    return tokens(alpha, k) / (Fraction(c) * k + 1)


def gains(alpha: float, c: float) -> list[Fraction]:
    """The speedup for K = 0 … K_MAX, exactly."""
    powers = accumulate([Fraction(alpha)] * K_MAX, operator.mul, initial=Fraction(1))
    return [total / (Fraction(c) * k + 1) for k, total in enumerate(accumulate(powers))]


def _closed(alpha: float, power: int) -> float:
    """(1 - α^power) / (1 - α), as a formula that somebody typed: without a thought for α = 1."""
    return (1 - alpha**power) / (1 - alpha) if alpha != 1 else math.nan


TOKENS = [
    Mistake("α^K instead of α^(K+1)", "K accepted drafts and one token more: the sum has K + 1 terms.", lambda a, k: _closed(a, k)),
    Mistake("the token that every step emits is left out", "The sum begins with 1.", lambda a, k: float(tokens(a, k)) - 1),
    Mistake("α^(K+2): one term too many", "The sum ends with α^K.", lambda a, k: _closed(a, k + 2)),
    Mistake("αK + 1: later drafts count only if the earlier ones were accepted", "Token i needs i acceptances: α^i.",
            lambda a, k: a * k + 1),
    Mistake("α^K is not summed over the positions", "Sum over all positions.", lambda a, k: a**k),
    Mistake("not divided by 1 - α", "(1 - α^(K+1)) / (1 - α).", lambda a, k: 1 - a ** (k + 1)),
    Mistake("always K + 1 tokens", "Only if every draft is accepted.", lambda a, k: k + 1),
]  # fmt: skip

SPEEDUP = [
    Mistake("c is ignored", "A step costs one target forward and K draft steps of cost c each.", lambda a, k, c: float(tokens(a, k))),
    Mistake("the cost is cK: the target's forward is left out", "The target runs once per step: cK + 1.",
            lambda a, k, c: float(tokens(a, k)) / (c * k) if c * k else math.inf),
    Mistake("the cost is c + 1, whatever K is", "The draft runs K times.", lambda a, k, c: float(tokens(a, k)) / (c + 1)),
    Mistake("the cost is c(K + 1) + 1", "The draft runs K times, not K + 1.",
            lambda a, k, c: float(tokens(a, k)) / (c * (k + 1) + 1)),
    Mistake("the cost is K + c: c stands at the target", "c is the cost of a draft step in target forwards.",
            lambda a, k, c: float(tokens(a, k)) / (k + c)),
    Mistake("multiplied by the cost", "Divide: a step that costs more is slower.", lambda a, k, c: float(tokens(a, k)) * (c * k + 1)),
    Mistake("α^K instead of α^(K+1)", "K accepted drafts and one token more.", lambda a, k, c: _closed(a, k) / (c * k + 1)),
]  # fmt: skip


# -- expected_tokens and speedup ---------------------------------------------------------------------------------------


@register("04.expected_tokens")
def expected_tokens(student: Callable, seed: int) -> Result:
    draw = random.Random(f"tokens {seed}")
    ordinary = [(0.7, 1), (0.7, 4), (0.9, 8), *((draw.uniform(0.05, 0.95), draw.randint(1, 20)) for _ in range(20))]
    limits = [(0.6, 0), (0.0, 0), (0.0, 5), (1.0, 5), (1.0, 0), (1 - 1e-9, 7)]
    _compare(student, "expected_tokens", ordinary, limits, tokens, TOKENS)
    curves = {f"α = {a}": [_number(call(student, a, k)) for k in range(17)] for a in (0.5, 0.7, 0.75, 0.85, 0.9)}
    picture = {"kind": "curves", "curves": curves, "title": "Tokens per target forward", "ylabel": "τ"}
    return Result(True, f"{len(ordinary + limits)} values are right, α = 0, α = 1 and K = 0 among them", picture=picture)


@register("04.speedup")
def speedup(student: Callable, seed: int) -> Result:
    draw = random.Random(f"speedup {seed}")
    ordinary = [(0.75, 5, 0.2), (0.8, 4, 0.05)]
    ordinary += [(draw.uniform(0.05, 0.95), draw.randint(1, 20), draw.uniform(0.01, 0.5)) for _ in range(20)]
    limits = [(0.6, 0, 0.1), (0.8, 5, 0.0), (1.0, 5, 0.1), (0.0, 4, 0.2)]
    _compare(student, "speedup", ordinary, limits, gain, SPEEDUP)
    curves = {f"c = {c}": [_number(call(student, 0.8, k, c)) for k in range(17)] for c in (0.2, 0.1, 0.05, 0.02)}
    picture = {"kind": "curves", "curves": curves, "title": "Speedup for α = 0.8", "ylabel": "speedup"}
    return Result(True, f"{len(ordinary + limits)} values are right, α = 1, c = 0 and K = 0 among them", picture=picture)


HALF = 0.5  # of the points, where only a limit is wrong


def _compare(student: Callable, name: str, ordinary: list, limits: list, right: Callable, catalogue: list[Mistake]) -> None:
    """Raises Wrong at the first value that is off; a limit that breaks the division gets a message of its own."""
    answers = [_number(call(student, *case, what=f"{name}{case}")) for case in ordinary]
    expected = [float(right(*case)) for case in ordinary]
    wrong = next((i for i, pair in enumerate(zip(answers, expected)) if not _close(*pair)), None)
    if wrong is not None:
        named = next((m for m in catalogue if all(_close(a, m.variant(*case)) for a, case in zip(answers, ordinary))), None)
        raise Wrong(
            named.name if named else f"{name} is wrong", f"{name}{_rounded(ordinary[wrong])} = {expected[wrong]:.6g}",
            f"{answers[wrong]:.6g}", named.hint if named else "Compute this one by hand, from the sum.",
        )  # fmt: skip
    for case in limits:
        expected_value, shown = float(right(*case)), f"{name}{case}"
        try:
            answer = _number(call(student, *case, what=shown))
        except Wrong as error:
            if "ZeroDivision" not in error.result.message:
                raise
            divisor = "α = 1" if case[0] == 1 else f"{shown}"
            expected, got = f"{shown} = {expected_value:.6g}", error.result.got
            raise Wrong(f"{divisor} divides by zero", expected, got, _LIMIT_HINT, credit=HALF) from None
        if not _close(answer, expected_value):
            named = "α = 1 gives NaN" if answer != answer else f"wrong at a limit: {shown}"
            raise Wrong(named, f"{shown} = {expected_value:.6g}", f"{answer:.6g}", _LIMIT_HINT, credit=HALF)


_LIMIT_HINT = "The sum 1 + α + … + α^K has no division: at α = 1 it is K + 1, at K = 0 it is 1."


def _number(answer: Any) -> float:
    try:
        return number(answer)
    except ValueError:
        raise Wrong("the result is no number", "a number", shown(answer)) from None


def _close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= CLOSE * max(1.0, abs(b))


def _rounded(case: Sequence[float]) -> tuple:
    return tuple(round(x, 4) if isinstance(x, float) else x for x in case)


# -- optimal_k ---------------------------------------------------------------------------------------------------------


@register("04.optimal_k")
def optimal_k(student: Callable, seed: int) -> Result:
    """The table of the reference, limits, and random α and c. Any K of the best speedup is right where several have it."""
    draw = random.Random(f"optimal {seed}")
    table = [(a, c) for c in COSTS for a in ALPHAS]
    loses = [(0.3, 0.5), (0.1, 0.2), (0.0, 0.1)]
    limits = [(1.0, 0.1), (0.9, 0.0), (1.0, 0.0), (0.0, 0.0)]
    cases = [*table, *loses, *limits, *((draw.uniform(0.3, 0.95), draw.uniform(0.005, 0.3)) for _ in range(15))]
    answers = [_pair(call(student, a, c, what=f"optimal_k({a:.4g}, {c:.4g})")) for a, c in cases]
    for (a, c), (k, speed) in zip(cases, answers):
        exact = [float(g) for g in gains(a, c)]
        if not 0 <= k <= K_MAX or exact[k] < max(exact) * (1 - TIE) or (max(exact) == 1 and c > 0 and k > 0):
            _explain_k(a, c, k, exact, cases, answers)
        if not _close(speed, exact[k]):
            raise Wrong(
                "the speedup beside K is wrong", f"optimal_k({a:.4g}, {c:.4g}) = ({k}, {exact[k]:.4f})", f"({k}, {speed:.4f})",
                "Return speedup(alpha, K, c) for the K that you found.",
            )  # fmt: skip
    curves = {f"c = {c}": [float(g) for g in gains(0.8, c)[:21]] for c in reversed(COSTS)}
    marks = [(*answers[table.index((0.8, c))], f"K = {answers[table.index((0.8, c))][0]}") for c in COSTS]
    picture = {"kind": "curves", "curves": curves, "marks": marks, "title": "Your best K for α = 0.8", "ylabel": "speedup"}
    return Result(True, f"the best K is right for {len(cases)} pairs (α, c), K = 0 where nothing helps among them", picture=picture)


def _explain_k(a: float, c: float, k: int, exact: list[float], cases: list, answers: list[tuple[int, float]]) -> None:
    best = exact.index(max(exact))
    named, hint = _name_k(cases, [k for k, _ in answers])
    shown = f"{exact[k]:.4f} at your K" if 0 <= k <= K_MAX else f"your K lies outside 0 … {K_MAX}"
    raise Wrong(
        named or "another K is faster", f"optimal_k({a:.4g}, {c:.4g}) = ({best}, {exact[best]:.4f})", f"K = {k}: {shown}",
        hint or f"Try every K from 0 to {K_MAX}.",
    )  # fmt: skip


def _name_k(cases: list[tuple[float, float]], ks: list[int]) -> tuple[str, str]:
    """By the K that each mistake would have chosen, for all cases at once."""

    def chosen(score: Callable[[float, int, float], float], start: int = 0, end: int = K_MAX) -> list[int]:
        return [max(range(start, end + 1), key=lambda k: (score(a, k, c), -k)) for a, c in cases]

    tables = {case: [float(g) for g in gains(*case)] for case in cases}

    def exact(a: float, k: int, c: float) -> float:
        return tables[a, c][k]

    catalogue = [
        ("K = 0, do not speculate, is left out", "Begin at K = 0: its speedup is 1.", chosen(exact, start=1)),
        ("c is ignored: more tokens, not more speed", "Maximise the speedup, not the tokens.",
         [K_MAX if a > 0 else k for (a, _), k in zip(cases, ks)]),
        ("α^K instead of α^(K+1)", "The speedup below it is wrong: get 04.speedup to pass first.",
         chosen(lambda a, k, c: (sum(a**i for i in range(k)) if k else 0) / (c * k + 1))),
    ]  # fmt: skip
    for name, hint, behaviour in catalogue:
        if behaviour == ks:
            return name, hint
    if max(ks) < K_MAX and ks == chosen(exact, end=max(ks)):
        return "the search stops too early", f"Try every K up to {K_MAX}; yours never exceeds {max(ks)}."
    return "", ""


def _pair(answer: Any) -> tuple[int, float]:
    try:
        k, speed = answer
        return whole(k), number(speed)
    except (TypeError, ValueError):
        raise Wrong(
            "optimal_k did not return the pair (K, speedup)", "a pair such as (6, 2.47)", shown(answer),
            "Return both: `return best, speedup(alpha, best, c)`.",
        ) from None  # fmt: skip
