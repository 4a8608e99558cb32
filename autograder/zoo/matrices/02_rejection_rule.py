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


def mistake(check: str, name: str, says: str = "", **parts: Any) -> Mistake:
    styles = parts.pop("styles", ())
    return Mistake(name, f"02.{check}", says, parts, tuple(styles), parts.pop("unnamed", {}))


def one_hot_argmax(p):
    best = max(range(len(p)), key=lambda t: float(p[t]))
    return [float(t == best) for t in range(len(p))]


def law(name: str, says: str = "", **parts: Any) -> Mistake:
    return mistake("exact_law", name, says or name, **parts)


def residual_of(i: Callable) -> Callable:
    return lambda step, at, x: step.draw(step.parts.residual(step.p(i(step, at)), step.q(i(step, at))))


MISTAKES = [
    mistake("accept_or_reject", "q/p", "q/p instead of p/q", accept=lambda p, q, u: u * p < q),
    mistake("accept_or_reject", "u above p/q", "u is above p/q", accept=lambda p, q, u: u * q > p),
    mistake("residual_dist", "the residual is p", "resamples from p", residual=lambda p, q: list(p)),
    mistake("residual_dist", "|p - q|", "|p - q|", residual=lambda p, q: normalised([abs(a - b) for a, b in zip(p, q)], p)),
    law("no bonus token", bonus=lambda step: None),
    law("the bonus token is drawn from q", bonus=lambda step: step.draw(step.row("draft", text(step, len(step.drafted))))),
    law("the residual is taken at the wrong position", correction=residual_of(lambda step, i: i + 1)),
]

MATRIX = Matrix("02-rejection-rule", STYLES, tuple(MISTAKES))
