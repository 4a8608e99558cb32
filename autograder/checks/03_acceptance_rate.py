"""Checks of chapter 03: α against exact fractions, counted α against the rounds, and two drafts that KL and α order differently."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from autograder.checks.acceptance_mistakes import (
    ALPHA,
    ERROR,
    OVERLAP,
    SCATTER,
    TEMPERATURE,
    Distribution,
    Rounds,
    at,
    coin_error,
    divergence,
    overlap,
    pooled,
    scatter_error,
)
from autograder.checks.core import Mistake, Result, Wrong, call, register
from autograder.inside.plain import number, shown, vector

CLOSE = 1e-5  # absolute; single precision is right too, and no case of a mistake comes so near for all cases at once
MARGIN = 0.01  # by which the KL and the α of two drafts must differ
HALF = 0.5  # of the points, where only a limit is wrong


def drawn(draw: random.Random, size: int, zeros: int = 0) -> Distribution:
    """Hundredths, so that p and q are equal nowhere by rounding alone."""
    places = draw.sample(range(size), size - zeros)
    cuts = sorted(draw.sample(range(1, 100), len(places) - 1))
    shares = dict(zip(places, (b - a for a, b in zip([0, *cuts], [*cuts, 100]))))
    return [shares.get(x, 0) / 100 for x in range(size)]


def _number(answer: Any, what: str = "a number") -> float:
    try:
        return number(answer)
    except ValueError:
        raise Wrong("the result is no number", what, shown(answer)) from None


def _close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= CLOSE


def _named(cases: Sequence[tuple], answers: Sequence[float], catalogue: Sequence[Mistake], otherwise: str) -> tuple[str, str]:
    """The mistake that gives these answers for all of the cases: its name and its hint."""

    def value(mistake: Mistake, case: tuple) -> float:
        try:
            return mistake.variant(*case)
        except (ZeroDivisionError, OverflowError):
            return math.nan

    for mistake in catalogue:
        if all(_close(answer, value(mistake, case)) for case, answer in zip(cases, answers)):
            return mistake.name, mistake.hint
    return otherwise, ""


def _shown(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values) + "]"


# -- acceptance_rate ---------------------------------------------------------------------------------------------------


@register("03.acceptance_rate")
def acceptance_rate(student: Callable, seed: int) -> Result:
    draw = random.Random(f"overlap {seed}")
    cases = [([0.40, 0.25, 0.20, 0.10, 0.05], [0.25, 0.15, 0.20, 0.20, 0.20])]
    cases += [(drawn(draw, size := draw.randint(3, 8)), drawn(draw, size)) for _ in range(16)]
    cases += [(drawn(draw, size := draw.randint(4, 8), 1), drawn(draw, size, 1)) for _ in range(6)]
    some = drawn(draw, 5)
    limits = [
        (some, list(some)),
        ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.75, 0.25]),
        ([1.0, 0.0], [1.0, 0.0]),
        ([0.0, 1.0, 0.0], [some[0], 1 - some[0], 0.0]),
    ]
    ordinary = cases[:17]  # without zeros: a division by q is caught apart
    answers = [_number(call(student, list(p), list(q), what="acceptance_rate(p, q)")) for p, q in ordinary]
    for (p, q), answer in zip(ordinary, answers):
        if not _close(answer, overlap(p, q)):
            name, hint = _named(ordinary, answers, OVERLAP, "acceptance_rate is wrong")
            raise Wrong(
                name,
                f"{overlap(p, q):.6g} for p = {_shown(p)} and q = {_shown(q)}",
                f"{answer:.6g}",
                hint or "Add min(p(x), q(x)) over all x.",
                _overlap_picture(p, q),
            )
    for p, q in cases[17:] + limits:
        try:
            answer = _number(call(student, list(p), list(q), what="acceptance_rate(p, q)"))
        except Wrong as error:
            if "ZeroDivision" not in error.result.message:
                raise
            answer = math.nan
        if not _close(answer, overlap(p, q)):
            name = "an entry of 0 divides by zero" if answer != answer else "wrong where an entry is 0 or p and q are equal"
            raise Wrong(
                name,
                f"{overlap(p, q):.6g} for p = {_shown(p)} and q = {_shown(q)}",
                f"{answer:.6g}",
                "Σ min(p, q) needs no division.",
                _overlap_picture(p, q),
                credit=HALF,
            )
    message = f"{len(cases + limits)} pairs are right, equal and disjoint ones among them"
    return Result(True, message, picture=_overlap_picture(*cases[0]))


def _overlap_picture(p: Sequence[float], q: Sequence[float]) -> dict:
    series = {"p": list(p), "q": list(q), "min(p, q)": [min(a, b) for a, b in zip(p, q)]}
    return {"kind": "distributions", "series": series, "title": f"The overlap of p and q: {overlap(p, q):.3f}"}


# -- alpha_at ----------------------------------------------------------------------------------------------------------


@register("03.alpha_at")
def alpha_at(student: Callable, seed: int) -> Result:
    draw = random.Random(f"temperature {seed}")
    temperatures = (0.25, 0.5, 0.75, 1.5, 2.0)
    ordinary = [(*_logits(draw), *draw.sample(temperatures, 2)) for _ in range(16)]
    ordinary += [(*_logits(draw), T, T) for T in temperatures]
    ask = lambda case: _number(call(student, list(case[0]), list(case[1]), case[2], case[3], what="alpha_at(…)"))  # noqa: E731
    answers = [ask(case) for case in ordinary]
    for case, answer in zip(ordinary, answers):
        if not _close(answer, at(*case)):
            name, hint = _named(ordinary, answers, TEMPERATURE, "alpha_at is wrong")
            raise Wrong(
                name,
                f"{at(*case):.6g} for {_case(case)}",
                f"{answer:.6g}",
                hint or "Two softmaxes, each at its own T, then task 1.",
            )
    z, y = _apart(draw)
    limits = [(z, y, 0, 0), (z, z, 0, 0), (z, y, 0, 1.0), (z, y, 1.0, 0), (y, z, 0, 0.5)]
    ties = [([1.0, 3.0, 3.0, 0.5], [0.0, 2.0, 1.0, 0.5], 0, 0), ([1.0, 2.0, 0.0, 0.5], [0.0, 4.0, 4.0, 0.5], 1.0, 0)]
    large = [
        ([1000.0, 998.5, 3.0], [1000.0, 999.5, 997.0], 1.0, 0.5),
        ([-1000.0, -999.0], [0.0, 1.0], 1.0, 1.0),
        (z, y, 0.01, 0.01),
        ([1.0, 0.975, 0.0], [0.975, 1.0, 0.5], 0.05, 0.01),  # small, and far from greedy
        (z, y, 1.0, 0.01),
    ]
    _limits(
        ask, limits, "T = 0 divides by zero", "wrong at T = 0", "At T = 0 return a list of zeros with a 1 at the largest logit."
    )
    _limits(
        ask,
        ties,
        "T = 0 divides by zero",
        "a tie at T = 0 is not the lowest id's",
        "`z.index(max(z))` is the first of equal logits.",
    )
    _limits(
        ask,
        large,
        "the exponential of a large logit overflows",
        "wrong for large logits or a small temperature",
        "Subtract the largest logit before the exponential.",
    )
    lines = {f"target at T = {T}": ([D / 20 for D in range(41)], [at(z, y, T, D / 20) for D in range(41)]) for T in (0, 0.5, 1)}
    picture = {
        "kind": "several",
        "lines": lines,
        "title": "Your α over the draft's temperature",
        "xlabel": "temperature of the draft",
        "ylabel": "α",
    }
    count = len(ordinary + limits + ties + large)
    return Result(True, f"{count} values are right, T = 0, ties and large logits among them", picture=picture)


def _logits(draw: random.Random) -> tuple[list[float], list[float]]:
    """Eighths, which single precision carries exactly."""
    size = draw.randint(4, 8)
    first, second = ([draw.randint(-24, 24) / 8 for _ in range(size)] for _ in range(2))
    return first, second


def _apart(draw: random.Random) -> tuple[list[float], list[float]]:
    """Logits whose largest ones stand at two places, without ties, and lie no more than 1.5 apart."""
    order = draw.sample(range(5), 5)
    return [[2.0, 1.5, 0.5, -0.5, 1.0][i] for i in order], [[1.25, 2.25, 0.25, 0.75, -1.0][i] for i in order]


def _case(case: tuple) -> str:
    z, y, T, D = case
    return f"target {_shown(z)} at T = {T}, draft {_shown(y)} at T = {D}"


def _limits(ask: Callable, cases: Sequence[tuple], broken: str, wrong: str, hint: str) -> None:
    for case in cases:
        try:
            answer = ask(case)
        except Wrong as error:
            if not any(kind in error.result.message for kind in ("ZeroDivision", "Overflow")):
                raise
            answer = math.nan
        if not _close(answer, at(*case)):
            raise Wrong(
                broken if answer != answer else wrong, f"{at(*case):.6g} for {_case(case)}", f"{answer:.6g}", hint, credit=HALF
            )


# -- alpha_from_rounds, error_by_rounds --------------------------------------------------------------------------------


def _runs(seed: int) -> list[Rounds]:
    """25 runs: each has a full acceptance, a rejection with drafts after it, and a round without a draft."""
    draw, runs = random.Random(f"rounds {seed}"), [[(4, 2), (4, 4), (0, 0), (4, 0), (3, 1)]]
    while len(runs) < 25:
        alpha = draw.uniform(0.3, 0.9)
        drafted = [draw.randint(0, 6) for _ in range(draw.randint(5, 40))]
        runs.append([(4, 1), (2, 2), (0, 0), *((d, _accepted(draw, alpha, d)) for d in drafted)])
        draw.shuffle(runs[-1])
    return runs


def _accepted(draw: random.Random, alpha: float, drafted: int) -> int:
    return next((i for i in range(drafted) if draw.random() >= alpha), drafted)


def _pair(answer: Any) -> tuple[float, float]:
    try:
        alpha, error = vector(answer)
    except (TypeError, ValueError):
        raise Wrong(
            "alpha_from_rounds did not return the pair (α, error)",
            "a pair such as (0.72, 0.05)",
            shown(answer),
            "Return both: `return alpha, error`.",
        ) from None
    return alpha, error


@register("03.alpha_from_rounds")
def alpha_from_rounds(student: Callable, seed: int) -> Result:
    runs = _runs(seed)
    answers = [_pair(call(student, list(rounds), what="alpha_from_rounds(rounds)")) for rounds in runs]
    cases = [(rounds,) for rounds in runs]
    alphas, errors = map(list, zip(*answers))
    for right, found, name, catalogue, advice in (
        (pooled, alphas, "α", ALPHA, "Count the judged tokens of this run by hand: min(accepted + 1, drafted) for each round."),
        (coin_error, errors, "the error", ERROR, "1.96 √(α(1 - α)/N)."),
    ):
        for rounds, answer in zip(runs, found):
            if not _close(answer, right(rounds)):
                mistake, hint = _named(cases, found, catalogue, f"{name} is wrong")
                raise Wrong(
                    mistake,
                    f"{name} = {right(rounds):.6g} for {_listed(rounds)}",
                    f"{answer:.6g}",
                    hint or advice,
                    credit=HALF if name == "the error" else 0.0,
                )
    for rounds in ([(3, 3), (5, 5)], [(4, 0), (2, 0)], [(1, 1), (0, 0)]):
        alpha, error = _pair(call(student, list(rounds), what="alpha_from_rounds(rounds)"))
        if not (_close(alpha, pooled(rounds)) and _close(error, 0)):
            raise Wrong(
                "wrong where all or no token was accepted",
                f"({pooled(rounds):g}, 0) for {rounds}",
                f"({alpha:.4g}, {error:.4g})",
                "The formulas hold there as they stand.",
                credit=HALF,
            )
    return Result(
        True, f"{len(runs)} runs are right, with full acceptances and rounds without a draft among them", picture=_growing()
    )


def _listed(rounds: Rounds) -> str:
    return str(rounds[:8])[:-1] + (", …]" if len(rounds) > 8 else "]")


def _growing() -> dict:
    draw = random.Random(3)
    rounds = [(4, _accepted(draw, 0.7, 4)) for _ in range(3000)]
    counts = (30, 100, 300, 1000, 3000)
    points = [(n, pooled(rounds[:n]), coin_error(rounds[:n])) for n in counts]
    return {
        "kind": "intervals",
        "points": points,
        "truth": 0.7,
        "title": "Longer runs, shorter intervals",
        "xlabel": "rounds of 4 drafted tokens",
        "ylabel": "α",
    }


@register("03.error_by_rounds")
def error_by_rounds(student: Callable, seed: int) -> Result:
    runs = _runs(seed)
    answers = [_number(call(student, list(rounds), what="error_by_rounds(rounds)")) for rounds in runs]
    for rounds, answer in zip(runs, answers):
        if not _close(answer, scatter_error(rounds)):
            mistake, hint = _named([(r,) for r in runs], answers, SCATTER, "the error is wrong")
            raise Wrong(
                mistake,
                f"{scatter_error(rounds):.6g} for {_listed(rounds)}",
                f"{answer:.6g}",
                hint or "1.96 √Σ (a - α n)² / N.",
            )
    draw = random.Random(4)
    steady = [(6, _accepted(draw, 0.7, 6)) for _ in range(600)]
    lumpy = [(6, 6) if draw.random() < 0.37 else (6, _accepted(draw, 0.33, 6)) for _ in range(600)]
    points = [
        (i, pooled(r), error(r))
        for i, (r, error) in enumerate(
            [(steady, coin_error), (steady, scatter_error), (lumpy, coin_error), (lumpy, scatter_error)]
        )
    ]
    labels = ["steady,\ncoin", "steady,\nby rounds", "in runs,\ncoin", "in runs,\nby rounds"]
    picture = {
        "kind": "intervals",
        "points": points,
        "labels": labels,
        "title": "The same number of rounds, two kinds of draft",
        "xlabel": "",
        "ylabel": "α",
    }
    message = f"{len(runs)} runs are right; for a steady draft the error is the coin's, for one that comes in runs it is larger"
    return Result(True, message, picture=picture)


# -- better_kl_worse_alpha ---------------------------------------------------------------------------------------------


@register("03.better_kl_worse_alpha")
def better_kl_worse_alpha(student: Callable, seed: int) -> Result:
    targets = _targets(seed)
    answers = [_drafts(call(student, list(p), what="better_kl_worse_alpha(p)"), p) for p in targets]
    for p, (first, second) in zip(targets, answers):
        kl, alpha = [divergence(p, q) for q in (first, second)], [overlap(p, q) for q in (first, second)]
        if kl[0] + MARGIN <= kl[1] and alpha[0] + MARGIN <= alpha[1]:
            continue
        got = f"KL {kl[0]:.4f} and {kl[1]:.4f}, α {alpha[0]:.4f} and {alpha[1]:.4f} for p = {_shown(p)}"
        raise Wrong(*_explained(p, first, second, kl, alpha), got=got, picture=_drafts_picture(p, first, second))
    picture = _drafts_picture(targets[0], *answers[0])
    return Result(
        True, f"for each of {len(targets)} targets your first draft has the better KL and the worse α", picture=picture
    )


def _targets(seed: int) -> list[Distribution]:
    """At least 0.02 each; one is uniform, where no token is rarer than another."""
    draw, targets = random.Random(f"drafts {seed}"), [[0.40, 0.25, 0.20, 0.10, 0.05], [0.25] * 4]
    while len(targets) < 12:
        size = draw.randint(3, 8)
        rest = drawn(draw, size)
        targets.append([round(0.02 + x * (1 - 0.02 * size), 6) for x in rest])
    return targets


def _drafts(answer: Any, p: Distribution) -> tuple[Distribution, Distribution]:
    """Plain floats, looked at once."""
    try:
        first, second = (vector(q) for q in answer)
    except (TypeError, ValueError):
        name = "better_kl_worse_alpha did not return two drafts"
        raise Wrong(name, "a pair of lists", shown(answer), "`return first, second`.") from None
    for which, q in (("first", first), ("second", second)):
        drafted = f"{_shown(q[:8])} for p = {_shown(p)}"
        if len(q) != len(p):
            raise Wrong(f"the {which} draft has {len(q)} entries, and p has {len(p)}", got=drafted)
        if not all(math.isfinite(x) and x >= 0 for x in q):
            raise Wrong(f"the {which} draft has an entry that is negative or no number", got=drafted)
        if abs(math.fsum(q) - 1) > CLOSE:
            raise Wrong(f"the {which} draft sums to {math.fsum(q):.4g}", "a sum of 1", drafted, "Divide by the sum.")
        if 0 in q:
            raise Wrong(
                f"the {which} draft has an entry of 0: its KL is infinite",
                "only positive entries",
                drafted,
                "A very small number does as well.",
            )
    return first, second


def _explained(p, first, second, kl, alpha) -> tuple[str, str]:
    """(name, what was expected)"""
    expected = "KL(p‖first) + 0.01 <= KL(p‖second) and α(first) + 0.01 <= α(second)"
    if kl[1] < kl[0] and alpha[1] < alpha[0]:
        return "the two drafts stand in the wrong order", expected
    if first == second:
        return "the two drafts are the same", expected
    reverse = [divergence(q, p) for q in (first, second)]
    if reverse[0] + MARGIN <= reverse[1] and alpha[0] + MARGIN <= alpha[1]:
        return "the KL is taken the wrong way round: KL(q‖p)", expected
    if kl[0] + MARGIN <= kl[1] and alpha[0] >= alpha[1] + MARGIN:
        return "the first draft has the better α too", expected
    if kl[0] >= kl[1] + MARGIN and alpha[0] + MARGIN <= alpha[1]:
        return "the second draft has the better KL too", expected
    if kl[0] < kl[1] and alpha[0] < alpha[1]:
        return "the order is right, and a difference is below 0.01", expected
    return "the two drafts do not differ as they should", expected


def _drafts_picture(p: Distribution, first: Distribution, second: Distribution) -> dict:
    series = {"p": p, "first": first, "second": second}
    title = " and ".join(f"KL {divergence(p, q):.3f}, α {overlap(p, q):.3f}" for q in (first, second))
    return {"kind": "distributions", "series": series, "title": f"Your drafts: {title}"}
