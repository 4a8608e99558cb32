"""Chapter 02: one step out of parts, in nine styles, and the mistakes as replaced parts.

Parts are written for numbers of any kind, float, numpy or torch, one by one; a style says of which kind they are, how a token is drawn,
when coins are drawn and models are asked, and how the step is built.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from autograder.zoo.matrix import Matrix, Mistake

# -- the right parts ---------------------------------------------------------------------------------------------------


def normalised(weights, fallback):
    total = sum(weights)
    return [w / total for w in weights] if total > 1e-7 else list(fallback)


def text(step, i):
    return (*step.prefix, *step.drafted[:i])


@dataclass(frozen=True)
class Parts:
    accept: Callable = lambda p, q, u: u * q < p  # of two numbers: accept_or_reject
    residual: Callable = lambda p, q: normalised([max(a - b, 0 * a) for a, b in zip(p, q)], p)  # of two vectors: residual_dist
    # The rest is the step's. `step` is a Step; i counts drafts from 0.
    length: Callable = lambda k: k  # how many are drafted
    proposal: Callable = lambda q: q  # what a draft is drawn from
    draft_text: Callable = text
    target_text: Callable = text
    coin: Callable = lambda step, i: step.coin(i)
    verdict: Callable = lambda step, i, x: step.parts.accept(step.p(i)[x], step.q(i)[x], step.parts.coin(step, i))
    correction: Callable = lambda step, i, x: step.draw(step.parts.residual(step.p(i), step.q(i)))  # a token, or None
    goes_on: bool = False
    emitted: Callable = lambda tokens: tokens
    bonus: Callable = lambda step: step.draw(step.p(len(step.drafted)))


# -- styles ------------------------------------------------------------------------------------------------------------


def inverse_cdf(rng, weights):
    u, total = rng.uniform(), 0.0
    for token, weight in enumerate(weights):
        total += float(weight)
        if u < total:
            return token
    return max(token for token, weight in enumerate(weights) if weight > 0)


def searched(rng, weights):
    total = np.cumsum(np.asarray(weights, dtype=np.float32))
    return int(np.searchsorted(total / total[-1], np.float32(rng.uniform()), side="right"))


@dataclass(frozen=True)
class Style:
    vector: Callable = list
    number: Callable = float
    sample: Callable = lambda rng, weights: rng.categorical(weights)
    early: str = ""  # "coins" or "numbers" are drawn before anything else
    eager: bool = False  # all drafts, then all rows of the target, then the decisions
    result: Callable = list


class Numbers:
    """An rng whose numbers were all drawn at once; tokens come from them too."""

    def __init__(self, rng, count):
        self.numbers = [rng.uniform() for _ in range(count)]

    def uniform(self):
        return self.numbers.pop(0)


class Step:
    """What a step knows: the drafts, and the rows of p and q, asked for when they are needed."""

    def __init__(self, style, parts, prefix, target, draft, k, rng):
        self.style, self.parts, self.prefix, self.target, self.draft, self.k = style, parts, tuple(prefix), target, draft, k
        self.rng = Numbers(rng, 2 * k + 1) if style.early == "numbers" else rng
        self.coins = [rng.uniform() for _ in range(k)] if style.early == "coins" else None
        self.drafted, self.rows = [], {}

    def row(self, who, text):
        if (who, text) not in self.rows:
            self.rows[who, text] = self.style.vector(getattr(self, who)(text))
        return self.rows[who, text]

    def p(self, i):
        return self.row("target", self.parts.target_text(self, i))

    def q(self, i):
        return self.row("draft", self.parts.draft_text(self, i))

    def draw(self, weights):
        return int(self.style.sample(self.rng, self.style.vector(weights)))

    def coin(self, i):
        return self.coins[i] if self.coins else self.style.number(self.rng.uniform())

    def propose(self, i):
        self.drafted.append(self.draw(self.parts.proposal(self.q(i))))
        return self.drafted[-1]


def loop(style, parts, *arguments):
    step = Step(style, parts, *arguments)
    count = parts.length(step.k)
    for i in range(count):
        step.propose(i)
    if style.eager:
        [step.p(i) for i in range(count + 1)]
    emitted = []
    for i, x in enumerate(step.drafted):
        if parts.verdict(step, i, x):
            emitted.append(x)
            continue
        token = parts.correction(step, i, x)
        emitted += [] if token is None else [token]
        if not parts.goes_on:
            return style.result(parts.emitted(emitted))
    token = parts.bonus(step)
    emitted += [] if token is None else [token]
    return style.result(parts.emitted(emitted))


def recursion(style, parts, *arguments):
    """Token by token: nothing is drafted behind a rejection."""
    step = Step(style, parts, *arguments)

    def rest(i):
        if i == parts.length(step.k):
            tokens = [parts.bonus(step)]
        else:
            x = step.propose(i)
            accepted = parts.verdict(step, i, x)
            tokens = [x if accepted else parts.correction(step, i, x)]
            tokens += rest(i + 1) if accepted or parts.goes_on else []
        return [token for token in tokens if token is not None]

    return style.result(parts.emitted(rest(0)))


class Speculation:
    """An object that is called, with its parts as methods."""

    def __init__(self, style, parts):
        self.style, self.parts = style, parts

    def __call__(self, *arguments):
        return self.style.result(self.parts.emitted(list(self.tokens(Step(self.style, self.parts, *arguments)))))

    def tokens(self, step):
        count = step.parts.length(step.k)
        drafts = [step.propose(i) for i in range(count)]
        decisions = (step.parts.verdict(step, i, x) for i, x in enumerate(drafts))
        for i, accepted in enumerate(decisions):
            token = drafts[i] if accepted else step.parts.correction(step, i, drafts[i])
            if token is not None:
                yield token
            if not (accepted or step.parts.goes_on):
                return
        token = step.parts.bonus(step)
        if token is not None:
            yield token


def written(build, **how) -> Callable:
    """A style of the exercise's three functions."""
    style = Style(**how)

    def functions(**replaced: Any) -> dict[str, Callable]:
        parts = replace(Parts(), **replaced)
        vector, number = style.vector, style.number
        return {
            "accept_or_reject": lambda p, q, u: parts.accept(number(p), number(q), number(u)),
            "residual_dist": lambda p, q: vector(parts.residual(vector(p), vector(q))),
            "spec_step": build(style, parts) if build is Speculation else lambda *arguments: build(style, parts, *arguments),
        }

    return functions


def float32(values):
    return np.array([float(v) for v in values], dtype=np.float32)


def tensor(values):
    return torch.tensor([float(v) for v in values])


STYLES = {
    "loops": written(loop),
    "recursion": written(recursion),
    "class": written(Speculation, eager=True),
    "coins first": written(loop, early="coins", eager=True),
    "numpy": written(loop, vector=np.array, number=np.float64, eager=True, result=np.array),
    "float32": written(recursion, vector=float32, number=np.float32),
    "torch": written(loop, vector=tensor, number=torch.tensor, eager=True, result=torch.tensor),
    "own sampler": written(loop, sample=inverse_cdf),
    "searchsorted": written(recursion, sample=searched, vector=float32),
    "numbers first": written(loop, sample=inverse_cdf, early="numbers", eager=True),
}

# -- mistakes ----------------------------------------------------------------------------------------------------------

WHOLE = ("loops", "class", "coins first", "numpy", "torch", "own sampler", "numbers first")  # all drafts are there before any is judged
SAMPLED = ("loops", "recursion", "own sampler")  # of a check of thousands of steps


def mistake(check: str, name: str, says: str, styles: tuple[str, ...] = (), **parts: Any) -> Mistake:
    return Mistake(name, f"02.{check}", says, parts, styles)


def accept(name: str, rule: Callable, says: str = "") -> Mistake:
    return mistake("accept_or_reject", name, says or name, accept=rule)


def residual(name: str, rule: Callable, says: str = "") -> Mistake:
    return mistake("residual_dist", name, says or name, residual=rule)


def law(name: str, says: str = "", styles: tuple[str, ...] = (), **parts: Any) -> Mistake:
    return mistake("exact_law", name, says or name, styles, **parts)


def one_hot_argmax(p):
    best = max(range(len(p)), key=lambda t: float(p[t]))
    return [float(t == best) for t in range(len(p))]


def excess(p, q):
    return [max(a - b, 0 * a) for a, b in zip(p, q)]


def softmax(x):
    return normalised([np.exp(float(a)) for a in x], x)


def ratio(p, q):
    return p / q if q > 0 else p * 0 + 9


# rows that a mistake takes in place of draft i's
after, before = (lambda step, i: i + 1), (lambda step, i: max(0, i - 1))
first, last = (lambda step, i: 0), (lambda step, i: step.k - 1)


def corrected(p_row, q_row):
    return lambda step, i, x: step.draw(step.parts.residual(step.p(p_row(step, i)), step.q(q_row(step, i))))


def judged(q_row):
    return lambda step, i, x: step.parts.accept(step.p(i)[x], step.q(q_row(step, i))[x], step.parts.coin(step, i))


def here(step, i):
    return i


def ruled(rule):
    """The step does not call accept_or_reject."""
    return lambda step, i, x: rule(step.p(i)[x], step.q(i)[x], step.parts.coin(step, i))


def drawn(weights):
    return lambda step, i, x: step.draw(weights(step.p(i), step.q(i), x))


def bonus(weights):
    """Of a step whose k is not 0; that one is right."""
    return lambda step: step.draw(weights(step) if step.drafted else step.p(0))


def unverified(skipped):
    return lambda step, i, x: skipped(step, i) or Parts.verdict(step, i, x)


def one_coin(step, i):
    if not hasattr(step, "only"):
        step.only = step.coin(0)
    return step.only


def joint(clipped):
    def verdict(step, i, x):
        r = ratio(step.p(i)[x], step.q(i)[x])
        step.joint = getattr(step, "joint", 1) * (min(r, 1) if clipped else r)
        return step.parts.coin(step, i) < step.joint

    return verdict


def own_sample(step, i, x):
    step.own = step.draw(step.p(i))
    return step.own == x


def in_place(change):
    """p's row is overwritten by change(p, q, x) before the decision; the correction subtracts q from what is there."""

    def verdict(step, i, x):
        p, q = step.p(i), step.q(i)
        for t, value in enumerate(change(list(p), list(q), x)):
            p[t] = value
        return Parts.verdict(step, i, x)

    return verdict


def written_over(change):
    """p's row is overwritten after the decision."""

    def correction(step, i, x):
        p, q = step.p(i), step.q(i)
        for t, value in enumerate(change(list(p), list(q), x)):
            p[t] = value
        return step.draw(normalised(excess(p, q), p if sum(p) else q))

    return correction


def only_last(step, i):
    return (*step.prefix, *step.drafted[:i][-1:])


def no_drafts(step, i):
    return step.prefix


def no_prefix(step, i):
    return tuple(step.drafted[:i])


MISTAKES = [
    accept("q/p instead of p/q", lambda p, q, u: u * p < q),
    accept("accepts when u is above p/q", lambda p, q, u: u * q > p),
    accept("accepts if and only if p >= q", lambda p, q, u: p >= q),
    accept("accepts with probability p", lambda p, q, u: u < p),
    accept("accepts with probability q", lambda p, q, u: u < q),
    accept("accepts with probability 1 - p/q", lambda p, q, u: u < 1 - ratio(p, q)),
    accept("accepts with probability 1 - q", lambda p, q, u: u < 1 - q),
    accept("accepts with probability 1 - p", lambda p, q, u: u < 1 - p),
    accept("accepts with probability p * q", lambda p, q, u: u < p * q),
    accept("accepts with probability p - q", lambda p, q, u: u < p - q),
    accept("accepts with probability min(p, q)", lambda p, q, u: u < min(p, q)),
    accept("accepts with probability p/(p + q)", lambda p, q, u: u < p / (p + q)),
    accept("accepts with the square of p/q", lambda p, q, u: u < ratio(p, q) ** 2),
    accept("accepts with the square root of p/q", lambda p, q, u: u < ratio(p, q) ** 0.5),
    accept("p/q is rounded", lambda p, q, u: u < round(float(ratio(p, q)), 1)),
    accept("p/q is rounded to a whole number", lambda p, q, u: u < round(float(ratio(p, q))), "as a rounded p/q does"),
    accept("accepts u below a fixed 0.5", lambda p, q, u: u < 0.5),
    accept("always accepts", lambda p, q, u: True),
    accept("never accepts", lambda p, q, u: False),
    residual("resamples from p", lambda p, q: list(p)),
    residual("resamples from q", lambda p, q: list(q)),
    residual("|p - q|", lambda p, q: normalised([abs(a - b) for a, b in zip(p, q)], p)),
    residual("(q - p)₊ instead of (p - q)₊", lambda p, q: normalised(excess(q, p), p)),
    residual("not normalised", excess),
    residual("divided by its maximum", lambda p, q: [a / max(excess(p, q)) for a in excess(p, q)] if max(excess(p, q)) > 0 else p),
    residual("q is subtracted by half", lambda p, q: normalised([max(a - b / 2, 0 * a) for a, b in zip(p, q)], p)),
    residual("1 - min(p, q) instead of p - min(p, q)", lambda p, q: normalised([1 - min(a, b) for a, b in zip(p, q)], p)),
    residual("min(p, q) instead of p - min(p, q)", lambda p, q: normalised([min(a, b) for a, b in zip(p, q)], p)),
    residual("softmax of the residual", lambda p, q: softmax(excess(p, q))),
    residual("softmax of p - q", lambda p, q: softmax([a - b for a, b in zip(p, q)])),
    residual("shifts p - q up to 0", lambda p, q: normalised([a - b - min(c - d for c, d in zip(p, q)) for a, b in zip(p, q)], p)),
    residual("argmax of the residual", lambda p, q: one_hot_argmax(excess(p, q))),
    residual("scalar q(x)", lambda p, q: normalised([max(a - max(q), 0 * a) for a in p], p)),
    mistake("spec_step", "one draft too many", "draft is called for", length=lambda k: k + 1, emitted=lambda tokens: tokens[:-1] or tokens,
            styles=("loops", "class", "numpy", "torch", "own sampler")),
    law("no bonus token", bonus=lambda step: None),
    law("the bonus token is drawn from q", bonus=lambda step: step.draw(step.row("draft", text(step, len(step.drafted))))),
    law("the bonus token is the argmax of p", bonus=lambda step: step.draw(one_hot_argmax(step.p(len(step.drafted))))),
    *(law(f"the bonus token is drawn from p after {name}", "the bonus token is drawn from p at the wrong position", bonus=bonus(weights))
      for name, weights in (("no draft", lambda step: step.p(0)), ("the first draft", lambda step: step.p(1)),
                            ("all drafts but the last", lambda step: step.p(step.k - 1)))),
    law("the bonus token is drawn from the last residual", "the bonus token is drawn from a residual",
        bonus=bonus(lambda step: step.parts.residual(step.p(step.k - 1), step.q(step.k - 1)))),
    law("the bonus token is drawn from the residual after the last draft", "the bonus token is drawn from a residual",
        bonus=bonus(lambda step: step.parts.residual(step.p(step.k), step.row("draft", text(step, step.k))))),
    law("the bonus token is the last draft again", bonus=lambda step: step.drafted[-1] if step.drafted else step.draw(step.p(0))),
    law("the bonus token is always token 0", "the bonus token is always the same", bonus=lambda step: 0),
    law("the bonus token is drawn uniformly", bonus=lambda step: step.draw([1 / len(step.p(0))] * len(step.p(0)))),
    law("no correction token after a rejection", correction=lambda step, i, x: None),
    law("emits the rejected token", correction=lambda step, i, x: x),
    law("continues after a rejection", goes_on=True, styles=tuple(STYLES)[:-1]),  # there were no more numbers
    law("skips a rejected token and continues", goes_on=True, correction=lambda step, i, x: None),
    law("the target's row is off by one position", target_text=lambda step, i: text(step, i + 1), styles=WHOLE),
    law("the target's row is one too early", "the target's row is off by one position",
        target_text=lambda step, i: text(step, max(0, i - 1) if i < step.k else i)),
    *(law(f"the residual of {name}", "the residual is taken at the wrong position", correction=corrected(row, row), styles=styles)
      for name, row, styles in (("the next position", after, WHOLE), ("the position before", before, ()), ("the first position, always", first, ()),
                                ("the last position, always", last, WHOLE))),
    law("the residual's p is the next one", "the residual is taken at the wrong position", correction=corrected(after, here)),
    *(law(f"a stale q, {name}", "q of another position in the decision and in the residual",
          verdict=judged(row), correction=corrected(here, row), styles=styles)
      for name, row, styles in (("that before", before, ()), ("always the first", first, ()), ("always the last", last, WHOLE))),
    law("a stale q in the decision", "q of another position in the decision", verdict=judged(last), styles=WHOLE),
    law("a stale q in the residual", "q of another position in the residual", correction=corrected(here, last), styles=WHOLE),
    law("resamples from p", correction=drawn(lambda p, q, x: p)),
    law("resamples from p after the rejected token", "the correction is drawn from p after the rejected token",
        correction=lambda step, i, x: step.draw(step.p(i + 1))),
    law("p - q(x) with the scalar q(x)", correction=drawn(lambda p, q, x: normalised([max(a - q[x], 0 * a) for a in p], p))),
    law("argmax of the residual", correction=drawn(lambda p, q, x: one_hot_argmax(excess(p, q)))),
    law("|p - q| in the step", "|p - q|", correction=drawn(lambda p, q, x: normalised([abs(a - b) for a, b in zip(p, q)], p))),
    law("q is subtracted by half", correction=drawn(lambda p, q, x: normalised([max(a - b / 2, 0 * a) for a, b in zip(p, q)], p))),
    law("1 - min(p, q)", correction=drawn(lambda p, q, x: normalised([1 - min(a, b) for a, b in zip(p, q)], p))),
    law("only the rejected token is masked in p",
        correction=drawn(lambda p, q, x: normalised([a * 0 if t == x else a for t, a in enumerate(p)], p))),
    law("the draft proposes its argmax", proposal=one_hot_argmax),
    law("the draft's temperature differs", proposal=lambda q: normalised([a * a for a in q], q)),
    law("one uniform number for all positions", coin=one_coin),
    law("the ratios are multiplied over the positions", verdict=joint(False)),
    law("the clipped ratios are multiplied", "the ratios are multiplied over the positions", verdict=joint(True)),
    law("the first draft is never verified", verdict=unverified(lambda step, i: i == 0)),
    law("the last draft is never verified", verdict=unverified(lambda step, i: i == step.k - 1)),
    law("only the first two drafts are verified", verdict=unverified(lambda step, i: i >= 2)),
    law("drafts at most two tokens, whatever k is", length=lambda k: min(k, 2)),
    law("the draft does not see what it drafted before", draft_text=no_drafts),
    law("the target does not see the drafts", target_text=no_drafts),
    law("the target sees only the last draft before it", target_text=only_last),
    law("the draft sees only the last draft before it", draft_text=only_last),
    law("the models see only the last draft before it", target_text=only_last, draft_text=only_last),
    law("the target does not see the prefix", target_text=no_prefix),
    law("accepts if and only if p >= q in the step", "accepts if and only if p >= q", verdict=ruled(lambda p, q, u: p >= q)),
    law("p/(p + q) in the step", "accepts with probability p/(p + q)", verdict=ruled(lambda p, q, u: u < p / (p + q))),
    law("the square of p/q in the step", "accepts with the square of p/q", verdict=ruled(lambda p, q, u: u < ratio(p, q) ** 2)),
    law("a rounded p/q in the step", "p/q is rounded", verdict=ruled(lambda p, q, u: u < round(float(ratio(p, q)), 1))),
    law("accepts if and only if the target's own sample equals the draft", verdict=own_sample, correction=lambda step, i, x: step.own),
    law("the residual is written into p before the decision", "p is overwritten before the decision",
        verdict=in_place(lambda p, q, x: normalised(excess(p, q), p))),
    law("the clamped difference is written into p before the decision", "p is overwritten before the decision",
        verdict=in_place(lambda p, q, x: excess(p, q)), correction=lambda step, i, x: step.draw(normalised(step.p(i), step.q(i)))),
    law("the residual is written into p, and q subtracted again", "p is overwritten before the residual is computed",
        correction=written_over(lambda p, q, x: normalised(excess(p, q), p))),
    *(mistake("equivalence", f"{name} (50,000 tokens)", "do not follow the target's distribution", SAMPLED, **parts) for name, parts in (
        ("the bonus token is always token 0", {"bonus": lambda step: 0 if step.drafted else step.draw(step.p(0))}),
        ("the bonus token is drawn from q", {"bonus": bonus(lambda step: step.row("draft", text(step, step.k)))}),
        ("the bonus token is drawn from p after the first draft", {"bonus": bonus(lambda step: step.p(1))}),
        ("continues after a rejection", {"goes_on": True}),
        ("the argmax of the residual", {"correction": drawn(lambda p, q, x: one_hot_argmax(excess(p, q)))}),
        ("resamples from p", {"correction": drawn(lambda p, q, x: p)}),
        ("always accepts", {"verdict": lambda step, i, x: True}),
        ("the last draft is never verified", {"verdict": unverified(lambda step, i: i == step.k - 1)}),
        ("always the residual of the first position", {"correction": corrected(first, first)}))),
]

MATRIX = Matrix("02-rejection-rule", STYLES, tuple(MISTAKES))
