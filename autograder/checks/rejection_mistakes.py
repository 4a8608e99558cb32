"""The catalogue of chapter 02: wrong variants of its three functions, by which a student's mistake gets its name.

A wrong step is the right step with one part replaced, so that each entry shows the mistake and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from autograder.checks.core import Mistake

Vector = list[float]


# -- the right rules ---------------------------------------------------------------------------------------------------


def accepts(p: float, q: float, u: float) -> bool:
    return u * q < p


def normalised(weights: Sequence[float], fallback: Vector) -> Vector:
    total = sum(weights)
    return [w / total for w in weights] if total > 0 else list(fallback)


def residual(p: Vector, q: Vector) -> Vector:
    return normalised([max(0.0, a - b) for a, b in zip(p, q)], p)


def one_hot_argmax(p: Vector) -> Vector:
    best = max(range(len(p)), key=lambda i: p[i])
    return [float(i == best) for i in range(len(p))]


# -- accept_or_reject --------------------------------------------------------------------------------------------------


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.inf


ACCEPT = [
    Mistake("q/p instead of p/q", "Accept with probability min(1, p/q): p is the target's.", lambda p, q, u: u < _ratio(q, p)),
    Mistake("accepts when u is above p/q", "u < r happens with probability r.", lambda p, q, u: u > _ratio(p, q)),
    Mistake(
        "accepts if and only if p >= q, without using u",
        "When p < q the token is still right sometimes: accept it with probability p/q.",
        lambda p, q, u: p >= q,
    ),
    Mistake("accepts with probability p", "The probability is p/q: the draft has already chosen with q.", lambda p, q, u: u < p),
    Mistake("accepts with probability 1 - p/q", "Compare u with p/q itself.", lambda p, q, u: u < 1 - _ratio(p, q)),
    Mistake("accepts with probability 1 - q", "Compare u with p/q.", lambda p, q, u: u < 1 - q),
    Mistake("always accepts", "Then the output is the draft's, not the target's.", lambda p, q, u: True),
    Mistake("never accepts", "Then every drafted token is wasted.", lambda p, q, u: False),
    Mistake("accepts at the fixed threshold 0.5", "The threshold is p/q.", lambda p, q, u: _ratio(p, q) > 0.5),
    Mistake("accepts u below a fixed 0.5", "The threshold is p/q, other for each token.", lambda p, q, u: u < 0.5),
    Mistake("accepts with probability p * q", "Divide: min(1, p/q).", lambda p, q, u: u < p * q),
    Mistake("accepts with probability p - q", "Divide: min(1, p/q).", lambda p, q, u: u < p - q),
]

# -- residual_dist -----------------------------------------------------------------------------------------------------


def _softmax(x: Vector) -> Vector:
    return normalised([math.exp(a) for a in x], x)


def _shifted(p: Vector, q: Vector) -> Vector:
    low = min(a - b for a, b in zip(p, q))
    return normalised([a - b - low for a, b in zip(p, q)], p)


RESIDUAL = [
    Mistake(
        "resamples from p instead of the residual",
        "min(p, q) has been emitted by acceptances already; only (p - q)₊ is left.",
        lambda p, q: list(p),
    ),
    Mistake("|p - q| instead of (p - q)₊", "Where q > p nothing is left to emit: clamp at 0.",
            lambda p, q: normalised([abs(a - b) for a, b in zip(p, q)], p)),
    Mistake("(q - p)₊ instead of (p - q)₊", "p is the target.", lambda p, q: residual(q, p)),
    Mistake("shifts p - q up to 0 instead of clamping it", "Negative entries become 0, the others stay.", _shifted),
    Mistake("softmax of the residual instead of dividing by its sum", "(p - q)₊ is no logit: divide by its sum.",
            lambda p, q: _softmax([max(0.0, a - b) for a, b in zip(p, q)])),
    Mistake("softmax of p - q instead of clamping and dividing by the sum", "Clamp at 0, then divide by the sum.",
            lambda p, q: _softmax([a - b for a, b in zip(p, q)])),
    Mistake("the residual is not normalised", "Divide by the sum, so that it is a distribution.",
            lambda p, q: [max(0.0, a - b) for a, b in zip(p, q)]),
    Mistake("p - q is neither clamped nor normalised", "Clamp at 0, then divide by the sum.",
            lambda p, q: [a - b for a, b in zip(p, q)]),
    Mistake("the argmax of the residual instead of the distribution", "Return all of it; spec_step samples from it.",
            lambda p, q: one_hot_argmax(residual(p, q))),
    *(
        Mistake(
            "p - q(x) with the scalar q(x)",
            "Subtract the vector q, entry by entry, not one probability of the drafted token from all entries.",
            lambda p, q, pick=pick: normalised([max(0.0, a - pick(q)) for a in p], p),
        )
        for pick in (max, min, lambda q: q[0], lambda q: q[-1])
    ),
    Mistake("resamples from q", "The correction comes from what p has more than q.", lambda p, q: list(q)),
    Mistake("p/q instead of p - q", "Subtract, clamp, divide by the sum.",
            lambda p, q: normalised([a / b if b > 0 else 0.0 for a, b in zip(p, q)], p)),
]  # fmt: skip

# -- spec_step ---------------------------------------------------------------------------------------------------------


def step(
    prefix: tuple[int, ...],
    target: Callable,
    draft: Callable,
    k: int,
    rng: Any,
    *,
    propose: Callable = lambda q, rng: rng.categorical(q),
    accept: Callable = lambda p, q, x, rng: accepts(p[x], q[x], rng.uniform()),
    correct: Callable = lambda p, q, x, rng: rng.categorical(residual(p, q)),
    bonus: Callable | None = lambda p, rng: rng.categorical(p),
    bonus_model: str = "target",
    target_row: int = 0,
    residual_row: int = 0,
    goes_on: bool = False,
) -> list[int]:
    """The right step; each keyword replaces one part of it by a wrong one."""
    drafted: list[int] = []
    for _ in range(k):
        drafted.append(propose(draft((*prefix, *drafted)), rng))

    def row(model: Callable, i: int, shift: int) -> Vector:
        return model((*prefix, *drafted[: min(max(i + shift, 0), k)]))

    emitted: list[int] = []
    for i, x in enumerate(drafted):
        p, q = row(target, i, target_row), row(draft, i, 0)
        if accept(p, q, x, rng):
            emitted.append(x)
            continue
        correction = correct(row(target, i, target_row + residual_row), row(draft, i, residual_row), x, rng)
        if correction is not None:
            emitted.append(correction)
        if not goes_on:
            return emitted
    if bonus is not None:
        emitted.append(bonus(row(target if bonus_model == "target" else draft, k, 0), rng))
    return emitted


def _mistake(name: str, hint: str, **replaced: Any) -> Mistake:
    return Mistake(name, hint, lambda *arguments: step(*arguments, **replaced))


def _by(rule: Callable) -> Callable:
    return lambda p, q, x, rng: rule(p[x], q[x], rng.uniform())


def _from(distribution: Callable) -> Callable:
    return lambda p, q, x, rng: rng.categorical(normalised(distribution(p, q), p))


def _scalar(p: Vector, q: Vector, x: int, rng: Any) -> int:
    return rng.categorical(normalised([max(0.0, a - q[x]) for a in p], p))


def _equals_own_sample(p: Vector, q: Vector, x: int, rng: Any) -> bool:
    rng.own = rng.categorical(p)
    return rng.own == x


def _half_temperature(q: Vector) -> Vector:
    return normalised([x * x for x in q], q)


_SAME_Q = "The q in p/q must be the distribution from which the token was really drawn."
STEP = [
    _mistake("no bonus token after k acceptances", "When all k drafts are accepted, draw one more token from p after the last.",
             bonus=None),
    _mistake("the bonus token is drawn from q", "The bonus token comes from the target.", bonus_model="draft"),
    _mistake("the bonus token is the argmax of p", "Sample it: rng.categorical(p).",
             bonus=lambda p, rng: rng.categorical(one_hot_argmax(p))),
    _mistake("no correction token after a rejection", "A rejection emits one token from the residual, then the step ends.",
             correct=lambda p, q, x, rng: None),
    _mistake("emits the rejected token, or one from (q - p)₊", "Replace it by a draw from (p - q)₊, normalised.",
             correct=lambda p, q, x, rng: x),
    _mistake("continues after a rejection", "The drafts behind a rejected token continue a text that no longer exists: stop.",
             goes_on=True),
    _mistake("skips a rejected token and continues", "The step ends at the first rejection, with one correction token.",
             correct=lambda p, q, x, rng: None, goes_on=True),
    _mistake("continues after a rejection, and emits no bonus token", "Stop at the first rejection.", goes_on=True, bonus=None),
    _mistake("the target's row is off by one position", "Token i is judged by target(prefix + drafted[:i]), which has not seen it.",
             target_row=1),
    _mistake("the target's row is off by one position", "Token i is judged by target(prefix + drafted[:i]).", target_row=-1),
    _mistake("the residual is taken at the wrong position", "p and q of the position that was rejected.", residual_row=1),
    _mistake("the residual is taken at the wrong position", "p and q of the position that was rejected.", residual_row=-1),
    _mistake("p - q(x) with the scalar q(x)", "Subtract the vector q, entry by entry.", correct=_scalar),
    _mistake("argmax of the residual instead of a sample", "Sample it: rng.categorical(residual).",
             correct=_from(lambda p, q: one_hot_argmax(residual(p, q)))),
    _mistake("the draft proposes its argmax, but q is soft", _SAME_Q,
             propose=lambda q, rng: rng.categorical(one_hot_argmax(q))),
    _mistake("the draft's temperature differs from the declared q", _SAME_Q,
             propose=lambda q, rng: rng.categorical(_half_temperature(q))),
    *(_mistake(m.name, m.hint, accept=_by(m.variant)) for m in ACCEPT if "1 - p/q" not in m.name),
    _mistake("accepts if and only if the target's own sample equals the draft",
             "Lossless, but it accepts less often: Σ p q, not Σ min(p, q). Use p/q and u.",
             accept=_equals_own_sample, correct=lambda p, q, x, rng: rng.own),
    *(_mistake(m.name, m.hint, correct=_from(lambda p, q, m=m: [max(0.0, a) for a in m.variant(p, q)]))
      for m in RESIDUAL if not any(word in m.name for word in ("normalised", "scalar", "argmax", "(q - p)"))),
]  # fmt: skip
