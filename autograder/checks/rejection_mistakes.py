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
    Mistake("accepts at the fixed threshold 0.5, as a rounded p/q does", "The threshold is p/q itself: neither rounded nor fixed.",
            lambda p, q, u: _ratio(p, q) > 0.5),
    Mistake("accepts u below a fixed 0.5", "The threshold is p/q, other for each token.", lambda p, q, u: u < 0.5),
    Mistake("accepts with probability p * q", "Divide: min(1, p/q).", lambda p, q, u: u < p * q),
    Mistake("accepts with probability p - q", "Divide: min(1, p/q).", lambda p, q, u: u < p - q),
    Mistake("accepts with probability p/(p + q)", "The probability is p/q itself, or 1.", lambda p, q, u: u * (p + q) < p),
    Mistake("accepts with the square of p/q", "Use the ratio once: in `u < p/q`, or in an `if` before it, not in both.",
            lambda p, q, u: u < _ratio(p, q) ** 2),
    Mistake("accepts with the square root of p/q", "The probability is p/q itself.", lambda p, q, u: u * u < _ratio(p, q)),
    *(Mistake("p/q is rounded", "Compare u with the quotient as it is.", lambda p, q, u, digits=digits: u < round(_ratio(p, q), digits))
      for digits in (1, 2)),
    Mistake("accepts with probability min(p, q)", "Divide: min(1, p/q).", lambda p, q, u: u < min(p, q)),
    Mistake("accepts with probability 1 - p", "Compare u with p/q.", lambda p, q, u: u < 1 - p),
    Mistake("accepts with probability q", "Compare u with p/q.", lambda p, q, u: u < q),
]  # fmt: skip

# -- residual_dist -----------------------------------------------------------------------------------------------------


def _softmax(x: Vector) -> Vector:
    return normalised([math.exp(a) for a in x], x)


def _by_maximum(weights: Vector) -> Vector:
    return [w / max(weights) for w in weights] if max(weights) > 0 else weights


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
    Mistake("q is subtracted by half", "Subtract all of q: p - q, entry by entry.",
            lambda p, q: normalised([max(0.0, a - b / 2) for a, b in zip(p, q)], p)),
    Mistake("the residual is divided by its maximum, not by its sum", "Divide by the sum, so that the entries add up to 1.",
            lambda p, q: _by_maximum([max(0.0, a - b) for a, b in zip(p, q)])),
    Mistake("1 - min(p, q) instead of p - min(p, q)", "min(p, q) is emitted already; what is missing to p is left.",
            lambda p, q: normalised([1 - min(a, b) for a, b in zip(p, q)], p)),
    Mistake("min(p, q) instead of p - min(p, q)", "min(p, q) is what acceptances emit; what is missing to p is left.",
            lambda p, q: normalised([min(a, b) for a, b in zip(p, q)], p)),
    Mistake("the residual is normalised before it is clamped", "Clamp at 0 first, entry by entry, then divide by the sum of what is left.",
            lambda p, q: [max(0.0, a - b) / (sum(abs(a - b) for a, b in zip(p, q)) or 1) for a, b in zip(p, q)]),
    Mistake("resamples from q", "The correction comes from what p has more than q.", lambda p, q: list(q)),
    Mistake("p/q instead of p - q", "Subtract, clamp, divide by the sum.",
            lambda p, q: normalised([a / b if b > 0 else 0.0 for a, b in zip(p, q)], p)),
]  # fmt: skip

# -- spec_step ---------------------------------------------------------------------------------------------------------


class State:
    """One step on its way. p(i), q(i): the rows that judge draft i, i from 0; p(k): that of the bonus token. memory: a step's own."""

    def __init__(self, prefix: tuple[int, ...], target: Callable, draft: Callable, rng: Any, target_text: Callable, draft_text: Callable):
        self.prefix, self.rng, self.drafted, self.memory = prefix, rng, [], {}
        self._models, self._texts = {"p": target, "q": draft}, {"p": target_text, "q": draft_text}
        self._rows: dict[tuple, Vector] = {}

    def p(self, i: int) -> Vector:
        return self._row("p", i)

    def q(self, i: int) -> Vector:
        return self._row("q", i)

    def _row(self, which: str, i: int) -> Vector:
        text = self._texts[which](self.prefix, tuple(self.drafted), max(i, 0))
        if (which, text) not in self._rows:
            self._rows[which, text] = self._models[which](text)
        return self._rows[which, text]

    @property
    def count(self) -> int:
        return len(self.drafted)


def _text(prefix: tuple[int, ...], drafted: tuple[int, ...], i: int) -> tuple[int, ...]:
    return (*prefix, *drafted[:i])


def _accept(s: State, i: int) -> bool:
    return accepts(s.p(i)[s.drafted[i]], s.q(i)[s.drafted[i]], s.rng.uniform())


def _correct(s: State, i: int) -> int:
    return s.rng.categorical(residual(s.p(i), s.q(i)))


def step(
    prefix: tuple[int, ...],
    target: Callable,
    draft: Callable,
    k: int,
    rng: Any,
    *,
    length: Callable = lambda k: k,
    propose: Callable = lambda q: q,
    accept: Callable = _accept,
    correct: Callable = _correct,
    bonus: Callable = lambda s: s.rng.categorical(s.p(s.count)),
    target_text: Callable = _text,
    draft_text: Callable = _text,
    goes_on: bool = False,
) -> list[int]:
    """The right step; each keyword replaces one part of it by a wrong one. correct and bonus give a token, or None."""
    s = State(prefix, target, draft, rng, target_text, draft_text)
    for i in range(length(k)):
        s.drafted.append(rng.categorical(propose(s.q(i))))
    emitted: list[int] = []
    for i, x in enumerate(s.drafted):
        if accept(s, i):
            emitted.append(x)
            continue
        emitted.append(correct(s, i))
        if not goes_on:
            break
    else:
        emitted.append(bonus(s))
    return [token for token in emitted if token is not None]


def _mistake(name: str, hint: str, **replaced: Any) -> Mistake:
    return Mistake(name, hint, lambda *arguments: step(*arguments, **replaced))


def _by(rule: Callable) -> Callable:
    """Accepts by a rule of p(x), q(x) and u."""
    return lambda s, i: rule(s.p(i)[s.drafted[i]], s.q(i)[s.drafted[i]], s.rng.uniform())


def _from(distribution: Callable) -> Callable:
    """Corrects from a distribution made of p and q."""
    return lambda s, i: s.rng.categorical(normalised(distribution(s.p(i), s.q(i)), s.p(i)))


def _rows(p_row: Callable, q_row: Callable) -> Callable:
    """Corrects from the residual of other rows."""
    return lambda s, i: s.rng.categorical(residual(s.p(p_row(s, i)), s.q(q_row(s, i))))


def _judged(q_row: Callable) -> Callable:
    """Accepts by another row of q."""
    return lambda s, i: accepts(s.p(i)[s.drafted[i]], s.q(q_row(s, i))[s.drafted[i]], s.rng.uniform())


def _scalar(s: State, i: int) -> int:
    return s.rng.categorical(normalised([max(0.0, a - s.q(i)[s.drafted[i]]) for a in s.p(i)], s.p(i)))


def _masked(s: State, i: int) -> int:
    return s.rng.categorical(normalised([0.0 if t == s.drafted[i] else a for t, a in enumerate(s.p(i))], s.p(i)))


def _own_sample(s: State, i: int) -> bool:
    s.memory["own"] = s.rng.categorical(s.p(i))
    return s.memory["own"] == s.drafted[i]


def _one_coin(s: State, i: int) -> bool:
    u = s.memory.setdefault("u", None)
    s.memory["u"] = u = s.rng.uniform() if u is None else u
    return accepts(s.p(i)[s.drafted[i]], s.q(i)[s.drafted[i]], u)


def _joint(clipped: bool) -> Callable:
    def accept(s: State, i: int) -> bool:
        ratio = _ratio(s.p(i)[s.drafted[i]], s.q(i)[s.drafted[i]])
        s.memory["joint"] = s.memory.get("joint", 1.0) * (min(1.0, ratio) if clipped else ratio)
        return s.rng.uniform() < s.memory["joint"]

    return accept


def _unless(skipped: Callable) -> Callable:
    """Accepts without a look where `skipped(i, count)`; no number is drawn there."""
    return lambda s, i: skipped(i, s.count) or _accept(s, i)


def _overwritten(p: Vector, q: Vector, x: int, how: str) -> Vector:
    excess = [max(0.0, a - b) for a, b in zip(p, q)]
    return {
        "clamped": excess, "residual": normalised(excess, p),
        "ratio": [_ratio(a, b) if t == x else a for t, (a, b) in enumerate(zip(p, q))],
        "ratios": [_ratio(a, b) if a > 0 else 0.0 for a, b in zip(p, q)],
    }[how]  # fmt: skip


def _spoilt(how: str, decided: bool, corrected: bool) -> dict[str, Callable]:
    """p is overwritten before the decision, or between it and the correction. corrected: the correction subtracts q from what p is now."""

    def accept(s: State, i: int) -> bool:
        p, q, x = s.p(i), s.q(i), s.drafted[i]
        return accepts((_overwritten(p, q, x, how) if decided else p)[x], q[x], s.rng.uniform())

    def correct(s: State, i: int) -> int:
        p, q = s.p(i), s.q(i)
        left = _overwritten(p, q, s.drafted[i], how)
        weights = normalised(left, p) if not corrected else normalised([max(0.0, a - b) for a, b in zip(left, q)], normalised(left, p))
        return s.rng.categorical([min(w, 1.0) for w in weights])

    return {"accept": accept, "correct": correct}


def _half_temperature(q: Vector) -> Vector:
    return normalised([x * x for x in q], q)


def _fixed(token: int) -> Callable:
    return lambda s: token


_SAME_Q = "The q in p/q must be the distribution from which the token was really drawn."
_KEEP_Q = "Keep the k vectors q while you draft. p(x)/q(x) and the residual take the one from which this very token was drawn."
_KEEP_P = "Compute the decision and the residual from p and q as the models gave them; write what comes of it into a new list."
_CONTEXT = "Ask about prefix + tuple(drafted[:i]): the whole text before draft i."
_LAST = "After k accepted drafts it is drawn from target(prefix + all k drafts), and nothing is subtracted."
_EACH = "Every draft has its own coin: call rng.uniform() inside the loop, and compare it with p(x)/q(x) of this position alone."
_ALL = "Loop over all k drafts: each one is compared with its coin."
_WRONG_ROW = "the residual is taken at the wrong position"
STEP = [
    _mistake("no bonus token after k acceptances", "When all k drafts are accepted, draw one more token from p after the last.",
             bonus=_fixed(None)),
    _mistake("the bonus token is drawn from q", "The bonus token comes from the target.",
             bonus=lambda s: s.rng.categorical(s.q(s.count))),
    _mistake("the bonus token is drawn from q", "The bonus token comes from the target, after the last draft.",
             bonus=lambda s: s.rng.categorical(s.q(s.count - 1) if s.count else s.p(0))),
    _mistake("the bonus token is the argmax of p", "Sample it: rng.categorical(p).",
             bonus=lambda s: s.rng.categorical(one_hot_argmax(s.p(s.count)))),
    *(_mistake("the bonus token is drawn from p at the wrong position", _LAST, bonus=lambda s, row=row: s.rng.categorical(s.p(row(s))))
      for row in (lambda s: s.count - 1, lambda s: min(1, s.count), lambda s: 0, lambda s: min(2, s.count))),
    *(_mistake("the bonus token is drawn from a residual", _LAST,
               bonus=lambda s, row=row: s.rng.categorical(residual(s.p(row(s)), s.q(row(s))) if s.count else s.p(0)))
      for row in (lambda s: s.count, lambda s: s.count - 1, lambda s: 0)),
    _mistake("the bonus token is drawn from a residual", _LAST,
             bonus=lambda s: s.rng.categorical(residual(s.p(s.count), s.q(s.count - 1)) if s.count else s.p(0))),
    _mistake("the bonus token is the last draft again", _LAST,
             bonus=lambda s: s.drafted[-1] if s.drafted else s.rng.categorical(s.p(0))),
    *(_mistake("the bonus token is always the same", "Sample it: rng.categorical(p).", bonus=_fixed(token)) for token in range(4)),
    _mistake("the bonus token is drawn uniformly", "Sample it from the target: rng.categorical(p).",
             bonus=lambda s: s.rng.categorical([1 / len(s.p(s.count))] * len(s.p(s.count)))),
    _mistake("no correction token after a rejection", "A rejection emits one token from the residual, then the step ends.",
             correct=lambda s, i: None),
    _mistake("emits the rejected token, or one from (q - p)₊", "Replace it by a draw from (p - q)₊, normalised.",
             correct=lambda s, i: s.drafted[i]),
    _mistake("continues after a rejection", "The drafts behind a rejected token continue a text that no longer exists: stop.",
             goes_on=True),
    _mistake("skips a rejected token and continues", "The step ends at the first rejection, with one correction token.",
             correct=lambda s, i: None, goes_on=True),
    _mistake("continues after a rejection, and emits no bonus token", "Stop at the first rejection.", goes_on=True, bonus=_fixed(None)),
    _mistake("the target's row is off by one position", "Token i is judged by target(prefix + drafted[:i]), which has not seen it.",
             target_text=lambda prefix, drafted, i: _text(prefix, drafted, i + 1)),
    _mistake("the target's row is off by one position", "Token i is judged by target(prefix + drafted[:i]).",
             target_text=lambda prefix, drafted, i: _text(prefix, drafted, max(0, i - 1) if i < len(drafted) else i)),
    _mistake("the target's row is off by one position", "Token i is judged by target(prefix + drafted[:i]).",
             target_text=lambda prefix, drafted, i: _text(prefix, drafted, max(0, i - 1))),
    *(_mistake(_WRONG_ROW, hint, correct=_rows(row, row)) for row, hint in (
        (lambda s, i: i + 1, "p and q of the position that was rejected, not of the one after it."),
        (lambda s, i: i - 1, "p and q of the position that was rejected, not of the one before it."),
        (lambda s, i: 0, "p and q of the position that was rejected, not always those of the first."),
        (lambda s, i: s.count - 1, "p and q of the position that was rejected, not always those of the last draft."),
        (lambda s, i: s.count, "p and q of the position that was rejected, not those after the last draft."))),
    *(_mistake(_WRONG_ROW, "The p of the residual is the one that rejected the token.", correct=_rows(row, lambda s, i: i)) for row in (
        lambda s, i: i + 1, lambda s, i: i - 1, lambda s, i: 0, lambda s, i: s.count)),
    *(_mistake("q of another position in the residual", _KEEP_Q, correct=_rows(lambda s, i: i, row)) for row in (
        lambda s, i: i - 1, lambda s, i: i + 1, lambda s, i: 0, lambda s, i: s.count - 1, lambda s, i: s.count)),
    *(_mistake("q of another position in the decision", _KEEP_Q, accept=_judged(row)) for row in (
        lambda s, i: i - 1, lambda s, i: i + 1, lambda s, i: 0, lambda s, i: s.count - 1, lambda s, i: s.count)),
    *(_mistake("q of another position in the decision and in the residual", _KEEP_Q,
               accept=_judged(row), correct=_rows(lambda s, i: i, row)) for row in (
        lambda s, i: i - 1, lambda s, i: i + 1, lambda s, i: 0, lambda s, i: s.count - 1, lambda s, i: s.count)),
    _mistake("the correction is drawn from p after the rejected token", "From (p - q)₊ at the position that was rejected, normalised.",
             correct=lambda s, i: s.rng.categorical(s.p(i + 1))),
    _mistake("p - q(x) with the scalar q(x)", "Subtract the vector q, entry by entry.", correct=_scalar),
    _mistake("argmax of the residual instead of a sample", "Sample it: rng.categorical(residual).",
             correct=_from(lambda p, q: one_hot_argmax(residual(p, q)))),
    _mistake("only the rejected token is masked in p", "Subtract all of q from p, entry by entry, and clamp at 0.", correct=_masked),
    _mistake("the draft proposes its argmax, but q is soft", _SAME_Q, propose=one_hot_argmax),
    _mistake("the draft's temperature differs from the declared q", _SAME_Q, propose=_half_temperature),
    _mistake("one uniform number for all positions", _EACH, accept=_one_coin),
    *(_mistake("the ratios are multiplied over the positions", _EACH, accept=_joint(clipped)) for clipped in (False, True)),
    _mistake("the first draft is never verified", _ALL, accept=_unless(lambda i, count: i == 0)),
    _mistake("the last draft is never verified", _ALL, accept=_unless(lambda i, count: i == count - 1)),
    *(_mistake(f"only the first {'two drafts are' if n > 1 else 'draft is'} verified", _ALL, accept=_unless(lambda i, count, n=n: i >= n))
      for n in (1, 2)),
    *(_mistake(f"drafts at most {'two tokens' if n > 1 else 'one token'}, whatever k is", "Draft k tokens, one after the other.",
               length=lambda k, n=n: min(k, n)) for n in (1, 2)),
    _mistake("drafts one token too few", "Draft k tokens: range(k).", length=lambda k: max(0, k - 1)),
    _mistake("the draft does not see what it drafted before", _CONTEXT, draft_text=lambda prefix, drafted, i: prefix),
    _mistake("the target does not see the drafts", _CONTEXT, target_text=lambda prefix, drafted, i: prefix),
    *(_mistake(f"the {who} only the last draft before it", _CONTEXT,
               **{text: lambda prefix, drafted, i: (*prefix, *drafted[:i][-1:]) for text in texts})
      for who, texts in (("target sees", ["target_text"]), ("draft sees", ["draft_text"]), ("models see", ["target_text", "draft_text"]))),
    *(_mistake(f"the {who} not see the prefix", _CONTEXT, **{text: lambda prefix, drafted, i: drafted[:i] for text in texts})
      for who, texts in (("target does", ["target_text"]), ("draft does", ["draft_text"]), ("models do", ["target_text", "draft_text"]))),
    *(_mistake(m.name, m.hint, accept=_by(m.variant)) for m in ACCEPT if "1 - p/q" not in m.name),
    _mistake("accepts if and only if the target's own sample equals the draft",
             "Lossless, but it accepts less often: Σ p q, not Σ min(p, q). Use p/q and u.",
             accept=_own_sample, correct=lambda s, i: s.memory["own"]),
    *(_mistake("p is overwritten before the decision", _KEEP_P, **_spoilt(how, True, corrected))
      for how in ("clamped", "residual", "ratio", "ratios") for corrected in (False, True)),
    *(_mistake("p is overwritten before the residual is computed", _KEEP_P, **_spoilt(how, False, True))
      for how in ("clamped", "residual", "ratio", "ratios")),
    *(_mistake(m.name, m.hint, correct=_from(lambda p, q, m=m: [max(0.0, a) for a in m.variant(p, q)]))
      for m in RESIDUAL if not any(word in m.name for word in ("normalised", "maximum", "scalar", "argmax", "(q - p)"))),
]  # fmt: skip
