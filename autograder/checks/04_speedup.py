"""Checks of chapter 04: the closed forms against exact fractions, and the best K against all K."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any

from autograder.checks.core import Mistake, Result, Wrong, call, register
from autograder.checks.speedup_mistakes import C_IGNORED, K_MAX, SEARCHES, SPEEDUP, TOKENS, TRY_ALL, found_by
from autograder.checks.speedup_mistakes import gain as speed
from autograder.inside.plain import number, shown, whole

CLOSE = 1e-5  # relative; single precision loses 3e-6 in the closed form nearest to α = 1, and no mistake comes so near
TIE = 2e-6  # relative; speedups that differ by less may look equal in single precision
APART = 1e-5  # by which the best K is ahead of every other, where it is drawn
HALF = 0.5  # of the points, where only a limit is wrong
ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
COSTS = (0.01, 0.02, 0.05, 0.1, 0.2)
LOSES = (0.3, 0.5), (0.1, 0.2), (0.0, 0.1), (0.49, 0.5)  # α, c: K = 0
NARROW = (0.51, 0.5), (0.36, 0.1), (0.58, 0.01)  # α, c: the best real K, 0.45, 1.49 and 6.49, is nearer to the whole number below
LATE = ((0.96, 0.005),)  # α, c: K = 59
NEAR_ONE = (0.995, 20), (0.9995, 64)  # α, K: taken for 1 such an α is wrong by 5 and by 2 %


def tokens(alpha: float, k: int) -> Fraction:
    """1 + α + … + α^K, exactly."""
    return sum(Fraction(alpha) ** i for i in range(k + 1))


def gain(alpha: float, k: int, c: float) -> Fraction:
    return tokens(alpha, k) / (Fraction(c) * k + 1)


@lru_cache(128)
def gains(alpha: float, c: float, k_max: int = K_MAX) -> tuple[Fraction, ...]:
    """The speedup for K = 0 … k_max, exactly."""
    powers = accumulate([Fraction(alpha)] * k_max, operator.mul, initial=Fraction(1))
    return tuple(total / (Fraction(c) * k + 1) for k, total in enumerate(accumulate(powers)))


# -- expected_tokens and speedup ---------------------------------------------------------------------------------------


@register("04.expected_tokens")
def expected_tokens(student: Callable, seed: int) -> Result:
    draw = random.Random(f"tokens {seed}")
    ordinary = [(0.7, 1), (0.7, 4), (0.9, 8), *((draw.uniform(0.05, 0.95), draw.randint(1, 20)) for _ in range(20))]
    limits = [(0.6, 0), (0.0, 0), (0.0, 5), (1.0, 5), (1.0, 0), *NEAR_ONE]
    _compare(student, "expected_tokens", ordinary, limits, tokens, TOKENS)
    curves = {f"α = {a}": [_number(call(student, a, k)) for k in range(17)] for a in (0.5, 0.7, 0.75, 0.85, 0.9)}
    picture = {"kind": "curves", "curves": curves, "title": "Tokens per target forward", "ylabel": "τ"}
    return Result(True, f"{len(ordinary + limits)} values are right, α = 0, α = 1 and K = 0 among them", picture=picture)


@register("04.speedup")
def speedup(student: Callable, seed: int) -> Result:
    draw = random.Random(f"speedup {seed}")
    ordinary = [(0.75, 5, 0.2), (0.8, 4, 0.05)]
    ordinary += [(draw.uniform(0.05, 0.95), draw.randint(1, 20), draw.uniform(0.01, 0.5)) for _ in range(20)]
    limits = [(0.6, 0, 0.1), (0.8, 5, 0.0), (1.0, 5, 0.1), (0.0, 4, 0.2), (0.7, 3, 1.5), *((a, k, 0.05) for a, k in NEAR_ONE)]
    _compare(student, "speedup", ordinary, limits, gain, SPEEDUP)
    curves = {f"c = {c}": [_number(call(student, 0.8, k, c)) for k in range(17)] for c in (0.2, 0.1, 0.05, 0.02)}
    picture = {"kind": "curves", "curves": curves, "title": "Speedup for α = 0.8", "ylabel": "speedup"}
    return Result(True, f"{len(ordinary + limits)} values are right, α = 1, c = 0 and K = 0 among them", picture=picture)


def _compare(student: Callable, name: str, ordinary: list, limits: list, right: Callable, catalogue: list[Mistake]) -> None:
    """Raises Wrong at the first value that is off; a limit that breaks the division gets a message of its own."""
    answers = [_number(_called(student, name, case)) for case in ordinary]
    expected = [float(right(*case)) for case in ordinary]
    wrong = next((i for i, pair in enumerate(zip(answers, expected)) if not _close(*pair)), None)
    if wrong is not None:
        named = next((m for m in catalogue if all(_close(a, m.variant(*case)) for a, case in zip(answers, ordinary))), None)
        raise Wrong(
            named.name if named else f"{name} is wrong", f"{name}{_rounded(ordinary[wrong])} = {expected[wrong]:.6g}",
            f"{answers[wrong]:.6g}", named.hint if named else "Compute this one by hand, from the sum.",
        )  # fmt: skip
    for case in limits:
        expected_value = float(right(*case))
        answer = _number(_at_limit(student, name, case, f"{expected_value:.6g}"))
        if not _close(answer, expected_value):
            named, hint = f"wrong at a limit: {name}{case}", _limit_hint(case)
            if answer != answer:
                named = "α = 1 gives NaN"
            elif case[:2] in NEAR_ONE and _close(answer, float(right(1.0, *case[1:]))):
                named, hint = f"α = {case[0]} is treated as 1", "Only α = 1 itself is a limit. The sum needs no limit at all."
            raise Wrong(named, f"{name}{case} = {expected_value:.6g}", f"{answer:.6g}", hint, credit=HALF)


_NO_DIVISION = "The sum 1 + α + … + α^K has no division: at α = 1 it is K + 1, at K = 0 it is 1."


def _limit_hint(case: Sequence[float]) -> str:
    alpha, k, *c = case
    if k == 0:
        return "With K = 0 nothing is drafted: the step emits one token and costs one target forward."
    if alpha == 0:
        return "At α = 0 every draft is rejected: the step emits one token, and the drafts cost what they cost."
    if c and c[0] in (0.0, 1.5):
        return "c may be 0, drafts for nothing, and above 1, a draft that is dearer than the target: the formula is the same."
    return _NO_DIVISION


def _called(student: Callable, name: str, case: Sequence[float]) -> Any:
    try:
        return call(student, *case, what=f"{name}{_rounded(case)}")
    except Wrong as error:
        found = error.result
        if "for ^" not in found.message:
            raise
        raise Wrong("^ is no power in Python", "alpha ** k", found.got, "alpha ** (k + 1) is α^(K+1); ^ combines bits.") from None


def _at_limit(student: Callable, name: str, case: Sequence[float], expected: str) -> Any:
    """The answer there; an exception costs half of the points."""
    shown = f"{name}{tuple(case)}"
    try:
        return call(student, *case, what=shown)
    except Wrong as error:
        if error.raised is None:  # no plain data came, or the student's process is gone
            raise
        found = error.result
        divides = "ZeroDivision" in found.message
        message = f"{'α = 1' if case[0] == 1 else shown} divides by zero" if divides else f"{shown}: {found.message}"
        raise Wrong(message, f"{shown} = {expected}", found.got, _NO_DIVISION if divides else found.hint, credit=HALF) from None


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
    """The table of the reference and random α and c; then limits, ties that every kind of float shows, and other k_max."""
    draw = random.Random(f"optimal {seed}")
    table = [(a, c) for c in COSTS for a in ALPHAS]
    ordinary = [*table, *LOSES, *NARROW, *LATE, *_clear_cases(draw, 15)]
    answers = [_pair(_called(student, "optimal_k", case)) for case in ordinary]
    for case, answer in zip(ordinary, answers):
        _check_best(case, answer, ordinary, answers)
    limits = [*_ties(draw), (1.0, 0.1), (0.9, 0.0), (1.0, 0.0), *_caps(draw)]
    for case in limits:
        exact = gains(*case)
        best = max(exact)
        answer = _pair(_at_limit(student, "optimal_k", case, f"({exact.index(best)}, {float(best):.4f})"))
        _check_limit(case, answer)
    curves = {f"c = {c}": [float(g) for g in gains(0.8, c)[:21]] for c in reversed(COSTS)}
    marks = [(*answers[table.index((0.8, c))], f"K = {answers[table.index((0.8, c))][0]}") for c in COSTS]
    picture = {"kind": "curves", "curves": curves, "marks": marks, "title": "Your best K for α = 0.8", "ylabel": "speedup"}
    message = f"the best K is right for {len(ordinary + limits)} pairs (α, c), ties, other k_max, and K = 0 where nothing helps among them"
    return Result(True, message, picture=picture)


def _clear_cases(draw: random.Random, count: int) -> Iterator[tuple[float, float]]:
    """α and c whose best K no kind of float mistakes for another."""
    while count:
        case = draw.uniform(0.3, 0.95), draw.uniform(0.005, 0.3)
        if _is_clear(gains(*case), APART):
            count -= 1
            yield case


def _is_clear(exact: Sequence[Fraction], margin: float) -> bool:
    """Whether the best K is ahead of every other by a relative margin."""
    second, first = sorted(exact)[-2:]
    return second < first * (1 - Fraction(margin))


def _ties(draw: random.Random) -> list[tuple[float, float]]:
    """Where no K gains and some K loses nothing. Multiples of 1/64 keep α = c exact in every float, in the sum and in the fraction."""
    return [(0.0, 0.0), (0.5, 0.5), *((m / 64, m / 64) for m in draw.sample(range(4, 61), 2)), (1.0, 1.0)]


def _caps(draw: random.Random) -> list[tuple[float, float, int]]:
    """With a k_max: below the best K, where it is the answer; above; far above 64; and 0."""
    low = draw.uniform(0.8, 0.95), draw.uniform(0.005, 0.02), draw.randint(2, 6)
    return [(0.9, 0.01, 7), low, (0.5, 0.1, 10), (0.99, 0.001, 100), (0.9, 0.05, 1), (0.9, 0.05, 0)]


def _is_best(exact: Sequence[Fraction], k: int) -> bool:
    """Whether K = k is right: the smallest of the best, or one that only rounding tells from it."""
    if not 0 <= k < len(exact):
        return False
    best = max(exact)
    return exact.index(best) == k or (best > 1 and exact[k] >= best * (1 - Fraction(TIE)))


def _check_best(case: tuple, answer: tuple[int, float], cases: list, answers: list[tuple[int, float]]) -> None:
    exact = gains(*case)
    if not _is_best(exact, answer[0]):
        named, hint = _name_search(cases, [k for k, _ in answers])
        raise Wrong(named, _shown(case, exact), _yours(exact, answer[0]), hint)
    _check_beside(case, exact, answer)


def _check_limit(case: tuple, answer: tuple[int, float]) -> None:
    """All of the ordinary ones are right: what is wrong here is a tie, a limit, or k_max."""
    exact, (k, _) = gains(*case), answer
    if _is_best(exact, k):
        return _check_beside(case, exact, answer, credit=HALF)
    best, most = exact.index(max(exact)), len(exact) - 1
    named, hint = f"wrong at a limit: α = {case[0]:.4g}, c = {case[1]:.4g}", f"Try every K from 0 to k_max = {most}."
    if 0 <= k <= most and exact[k] == exact[best]:
        named = f"not the smallest of several equally fast K, at α = {case[0]:.4g}, c = {case[1]:.4g}"
        hint = "Replace the best so far only if another K is faster, with > and not >=; and begin at K = 0."
    elif best == most and k == most - 1:
        named, hint = "k_max itself is never tried", "range(k_max) ends at k_max - 1."
    elif k == most + 1:
        named, hint = "k_max + 1 is tried", f"Drafts have at most k_max = {most} tokens: range(k_max + 1) ends there."
    elif len(case) == 3:
        named = "k_max is ignored" if _is_best(gains(*case[:2]), k) else "wrong with another k_max"
    raise Wrong(named, _shown(case, exact), _yours(exact, k), hint, credit=HALF)


def _check_beside(case: tuple, exact: Sequence[Fraction], answer: tuple[int, float], credit: float = 0.0) -> None:
    k, speed = answer
    if not _close(speed, float(exact[k])):
        is_tokens = _close(speed, float(tokens(case[0], k)))
        raise Wrong(
            "the speedup beside K is wrong" + (": it is τ" if is_tokens else ""), _shown(case, exact, k), f"({k}, {speed:.4f})",
            "Return speedup(alpha, K, c) for the K that you found.", credit=credit,
        )  # fmt: skip


def _shown(case: tuple, exact: Sequence[Fraction], k: int | None = None) -> str:
    k = exact.index(max(exact)) if k is None else k
    return f"optimal_k({', '.join(f'{x:.4g}' for x in case)}) = ({k}, {float(exact[k]):.4f})"


def _yours(exact: Sequence[Fraction], k: int) -> str:
    return f"K = {k}: {float(exact[k]):.4f} at your K" if 0 <= k < len(exact) else f"K = {k}, which lies outside 0 … {len(exact) - 1}"


def _name_search(cases: list[tuple[float, float]], ks: list[int]) -> tuple[str, str]:
    """By the K that each mistake would have found in all cases at once; where rounding may decide, in no case."""
    clear = [i for i, case in enumerate(cases) if _is_clear(gains(*case), TIE)]
    asked, found = [(*cases[i], K_MAX) for i in clear], [ks[i] for i in clear]
    if all(0 <= k <= most and speed(a, k, 0) >= speed(a, most, 0) * (1 - TIE) for (a, _, most), k in zip(asked, found)):
        return C_IGNORED.name, C_IGNORED.hint  # whichever of the K that a float cannot tell apart by their tokens
    named = next(((m.name, m.hint) for m in SEARCHES if m.variant(asked) == found), None)
    if named is None and max(ks) < K_MAX and found == found_by(speed, [(a, c, max(ks)) for a, c, _ in asked]):
        named = "the search stops too early", f"{TRY_ALL} Yours never exceeds {max(ks)}."
    return named or ("another K is faster", TRY_ALL)


def _pair(answer: Any) -> tuple[int, float]:
    try:
        k, speed = answer
        return whole(k), number(speed)
    except (TypeError, ValueError):
        raise Wrong(
            "optimal_k did not return the pair (K, speedup)", "a pair such as (6, 2.47)", shown(answer),
            "Return both: `return best, speedup(alpha, best, c)`.",
        ) from None  # fmt: skip
