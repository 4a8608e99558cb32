"""Everything around one speculative step: models that are tables, two random sources, and the exact law that is right.

How a step that compares a *float* u with a threshold of its own is enumerated. All probabilities of the tables are multiples
of 1/6, chosen so that every threshold a right step can use is one too: each p(x)/q(x) below 1, its complement, and the cumulative
sums of p, q and the residual. [0, 1) is cut there into six cells. A right step does the same everywhere inside a cell, however it
is written (u < p/q, u * q <= p, 1 - u < p/q, a draw by inverse CDF). `Enumeration.uniform` returns two numbers of each cell, INSIDE
within either end, each with half of the cell's length. If a threshold lies inside a cell, the two disagree, and the step is
credited with half of the cell, which is not the right probability; if it lies at a wrong cut, the probability is wrong by whole
cells. So TV = 0 holds for right steps in any style, and for no other threshold.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import count
from typing import Any

import numpy as np

from autograder.checks.core import Signal, Wrong, call
from autograder.inside.lent import EXACT, HALVES, MOST_UNIFORMS, Stream, as_floats, half
from specdec.law import Choose, law

BLOCK = 4096  # random numbers that are lent at once
AUDITED = 5  # branches of a law, of code in another process

# EXACT, 1e-6, is what a law may differ by: float32 code is right too; the smallest named mistake differs by 0.01.

# Prefixes are longer than a step's output, so that a step that returns its prefix is seen.
PREFIX, *_ = PREFIXES = ((0, 1, 2, 0), (3, 3, 1, 2), (2, 0, 3, 1))
GRID_CASES = ((PREFIXES[0], 1), (PREFIXES[1], 1), (PREFIXES[2], 1), (PREFIXES[0], 2))  # (prefix, k) of the exact law

Probabilities = Callable[[tuple[int, ...]], tuple[Sequence[Any], Sequence[Any]]]  # prefix → (p, q)

# (p, q) in sixths. The first three were searched: together they tell the mistakes of the catalogue from the right rule and from
# each other. They stand at the three prefixes; what follows a drafted token is drawn from the whole list.
_STRONG = [((3, 2, 1, 0), (1, 3, 0, 2)), ((3, 1, 1, 1), (1, 0, 2, 3)), ((3, 2, 1, 0), (1, 1, 3, 1))]
_PAIRS = [
    *_STRONG,
    ((1, 2, 2, 1), (3, 2, 1, 0)),  # a token that the draft never proposes
    ((0, 3, 2, 1), (2, 1, 3, 0)),  # and one that the target never emits
    ((3, 2, 1, 0), (6, 0, 0, 0)),  # a draft without doubt
    ((2, 2, 1, 1), (2, 2, 1, 1)),  # nothing is left for the residual
]


def grid_tables(seed: int) -> Probabilities:
    """p and q that depend on the whole prefix, in exact sixths. Another seed is another table over the same vocabulary of 4."""

    @cache
    def pair(prefix: tuple[int, ...]) -> tuple[list[Fraction], list[Fraction]]:
        draw = random.Random(f"{seed} {prefix}")
        p, q = _STRONG[(seed + PREFIXES.index(prefix)) % 3] if prefix in PREFIXES else draw.choice(_PAIRS)
        order = draw.sample(range(4), 4)
        return [Fraction(p[i], 6) for i in order], [Fraction(q[i], 6) for i in order]

    return pair


def constant(p: Sequence[Any], q: Sequence[Any]) -> Probabilities:
    """The same p and q after every prefix."""
    return lambda prefix: (p, q)


class Models:
    """target(prefix) and draft(prefix) over tables. `answers` has what each was asked, each prefix once."""

    def __init__(self, tables: Probabilities):
        self.tables, self.vocabulary = tables, len(tables(PREFIX)[0])
        self.answers: dict[str, dict[tuple[int, ...], list[float]]] = {"target": {}, "draft": {}}

    def target(self, prefix: Sequence[int]) -> list[float]:
        return self._answer("target", prefix)

    def draft(self, prefix: Sequence[int]) -> list[float]:
        return self._answer("draft", prefix)

    def _answer(self, who: str, prefix: Sequence[int]) -> list[float]:
        try:
            key = tuple(map(operator.index, prefix))
        except TypeError:
            raise Wrong(
                f"{who}(prefix) was called with something that is no sequence of whole numbers",
                got=f"{who}({prefix!r})"[:200],
                hint="The prefix is a tuple of token ids. Longer prefixes are `prefix + (token,)`.",
            ) from None
        if key not in self.answers[who]:
            self.answers[who][key] = [float(x) for x in self.tables(key)[who == "draft"]]
        return self.answers[who][key].copy()  # the student may change it


def plain_probabilities(probs: Any) -> list[float]:
    """Lists, tuples, numpy arrays and tensors as a list of floats, or Wrong with the reason why they are no distribution."""
    try:
        weights = as_floats(probs)
    except (TypeError, ValueError) as error:
        raise Wrong("rng.categorical got something that is no list of probabilities", got=repr(probs)[:200]) from error
    if weights and min(weights) >= 0 and abs(sum(weights) - 1) <= EXACT:
        return weights
    shown = f"rng.categorical({[round(x, 4) for x in weights]})"
    if any(x != x for x in weights):
        raise Wrong("rng.categorical got NaN", got=shown, hint="A residual without mass was divided by its sum, 0.")
    if min(weights, default=0.0) < -1e-9:
        raise Wrong("rng.categorical got a negative probability", got=shown, hint="Clamp p - q at 0 before you normalise it.")
    if abs(sum(weights) - 1) > EXACT:
        name = f"rng.categorical got weights that are not normalised: they sum to {sum(weights):.4g}"
        raise Wrong(name, got=shown, hint="Divide by the sum first.")
    return [max(0.0, x) for x in weights]


class Enumeration:
    """The rng under which `law` walks every branch of a step. See the module's text for `uniform`."""

    exposed = ("categorical", "uniform")  # to code in another process

    def __init__(self, choose: Choose):
        self._choose, self.uniforms = choose, 0

    def categorical(self, probs: Any) -> int:
        return self._pick(plain_probabilities(probs))

    def uniform(self) -> float:
        self.uniforms += 1
        if self.uniforms > MOST_UNIFORMS:
            raise TooManyUniforms
        return half(self._pick(HALVES))

    def _pick(self, weights: list[float]) -> int:
        try:
            return self._choose.categorical(weights)
        except IndexError:  # another number of alternatives than in the run that this one repeats
            raise OtherRandomness from None


class TooManyUniforms(Signal):
    """Tokens are drawn by inverse CDF: right, but too many branches to enumerate at this K."""


class OtherRandomness(Wrong):
    """The step does not depend on rng alone."""

    def __init__(self) -> None:
        super().__init__(
            "your step draws random numbers elsewhere than from rng",
            hint="Take every coin from rng.uniform() and every token from rng.categorical(probs), nothing from random or numpy.",
        )


class Sampling:
    """The rng of an ordinary run, and, `block` by block, its numbers in advance."""

    exposed = ("block", "categorical", "uniform")

    def __init__(self, seed: int | str):
        self._random = random.Random(seed)
        self._stream = Stream(lambda: self.block().tolist(), plain_probabilities)

    def block(self) -> np.ndarray:
        return np.array([self._random.random() for _ in range(BLOCK)])

    def uniform(self) -> float:
        return self._stream.uniform()

    def categorical(self, probs: Any) -> int:
        return self._stream.categorical(probs)


def emitted_tokens(step: Callable, prefix: tuple[int, ...], models: Models, k: int, rng: Any) -> tuple[int, ...]:
    """What one call of the student's step emitted, as a tuple of ints; Wrong if that is not 1 to k + 1 tokens."""
    result = call(step, prefix, models.target, models.draft, k, rng, what=f"spec_step({prefix}, target, draft, {k}, rng)")
    return as_tokens(result, prefix, models.vocabulary, k)


def as_tokens(result: Any, prefix: tuple[int, ...], vocabulary: int, k: int) -> tuple[int, ...]:
    asked = "a list of 1 to k + 1 token ids"
    if result is None:
        raise Wrong("spec_step returned None", asked, hint="Is there a path through your function without `return`?")
    try:
        tokens = tuple(operator.index(token) for token in result)
    except TypeError:
        raise Wrong("spec_step did not return a list of token ids", asked, repr(result)[:200]) from None
    if len(tokens) > max(k + 1, len(prefix)) and tokens[: len(prefix)] == prefix:
        raise Wrong("spec_step returned the prefix too", "only the new tokens", repr(list(tokens)))
    if not 1 <= len(tokens) <= k + 1:
        missing = "no correction token after a rejection" if k else "no token with k = 0"
        name = f"{missing}: nothing was emitted" if not tokens else f"{len(tokens)} tokens were emitted in one step with k = {k}"
        raise Wrong(name, asked, repr(list(tokens)), "Accepted drafts, then exactly one token more: the correction or the bonus.")
    if any(not 0 <= token < vocabulary for token in tokens):
        raise Wrong("a token outside the vocabulary was emitted", f"ids from 0 to {vocabulary - 1}", repr(list(tokens)))
    return tokens


def sampled_tokens(
    step: Callable, prefixes: Sequence[tuple[int, ...]], models: Models, k: int, seed: str, audited: int = 100
) -> list[tuple[int, ...]]:
    """What one step after each prefix emitted.

    Of a function in another process all are asked for at once, with models and numbers lent to it (`inside.lent`). Its first `audited`
    steps are run with every question answered here, too; what they emit must be the same.
    """
    session = getattr(step, "session", None)
    watched = prefixes if session is None else prefixes[:audited]
    rng = Sampling(seed)
    tokens = [emitted_tokens(step, prefix, models, k, rng) for prefix in watched]
    if session is None:
        return tokens
    found, odd = call(session.steps, step, prefixes, models, k, Sampling(seed), what=f"{len(prefixes)} steps")
    known: dict[tuple, tuple[int, ...]] = {}  # few results differ
    for seen in dict.fromkeys((tuple(result), prefix) for result, prefix in zip(found, prefixes)):
        known[seen] = as_tokens(*seen, models.vocabulary, k)
    lent = [known[tuple(result), prefix] for result, prefix in zip(found, prefixes)]
    lent += [as_tokens(result, prefix, models.vocabulary, k) for result, prefix in zip(odd, prefixes[len(found) :])]
    if len(lent) != len(prefixes):
        raise Wrong("some steps gave no result", f"{len(prefixes)} results", str(len(lent)))
    if lent[:audited] != tokens:
        raise OtherRandomness
    return lent


def law_of_step(
    step: Callable, tables: Probabilities, prefix: tuple[int, ...], k: int, calls: Counter | None = None
) -> dict[tuple, float]:
    """{emitted tuple: probability} of one call, exactly. `calls` gets the most prefixes that a branch asked each model about."""

    remote = getattr(step, "session", None) and Branches(step, prefix, Models(tables), k)

    def program(choose: Choose) -> tuple[int, ...]:
        models = Models(tables)
        if remote is None:
            tokens = emitted_tokens(step, prefix, models, k, Enumeration(choose))
        else:
            tokens = remote.tokens(choose, models)
        if calls is not None:
            for who, answers in models.answers.items():
                calls[who] = max(calls[who], len(answers))
        return tokens

    try:
        outcomes = law(program)
    except IndexError:  # a run drew less often than the one that it repeats
        raise OtherRandomness from None
    if abs(sum(outcomes.values()) - 1) > EXACT:
        raise OtherRandomness
    return outcomes


class Branches:
    """The branches of a function in another process. Each request brings several; what they drew from comes back, and is judged here.

    The first AUDITED branches are run question by question, too.
    """

    _numbers = count(1)

    def __init__(self, step: Any, prefix: tuple[int, ...], models: Models, k: int):
        self._step, self._prefix, self._models, self._k, self._number = step, prefix, models, k, next(self._numbers)
        self._come: dict[tuple[int, ...], tuple] = {}  # and not yet looked at
        self._audited = 0

    def tokens(self, choose: Choose, models: Models) -> tuple[int, ...]:
        """What the branch emitted that `choose` is to take; `models` hear what it asked."""
        script = choose.script
        if script not in self._come:
            asked = (self._step, self._prefix, self._models, self._k, script, self._number)
            self._come |= call(self._step.session.branches, *asked, what=f"spec_step({self._prefix}, …)")
        if script not in self._come:
            raise OtherRandomness
        result, log, called, refused = self._come.pop(script)
        rng = Enumeration(choose)
        for weights in log:
            rng.uniform() if weights is None else rng.categorical(weights)
        if refused:
            raise OtherRandomness
        for ask, prefixes in zip((models.target, models.draft), called):
            for prefix in prefixes:
                ask(prefix)
        tokens = as_tokens(result, self._prefix, models.vocabulary, self._k)
        if self._audited < AUDITED:
            self._audited += 1
            watched = Choose(list(script))
            again = emitted_tokens(self._step, self._prefix, self._models, self._k, Enumeration(watched))
            if (again, watched.probability) != (tokens, choose.probability):
                raise OtherRandomness
        return tokens


def right_law(tables: Probabilities, prefix: tuple[int, ...], k: int) -> dict[tuple, float]:
    """The law of one right step in closed form, no sampling: P(x₁…x_a, y) is the product of min(p, q)(xᵢ), the probability that
    xᵢ is drafted and accepted, times (p - q)₊(y), that a draft is rejected and y replaces it, or times p(y) after k acceptances
    (Leviathan et al. 2211.17192, section 2.3 and appendix A.1)."""
    p, q = tables(prefix)
    last = p if k == 0 else [max(0, a - b) for a, b in zip(p, q)]
    outcomes = {(y,): float(mass) for y, mass in enumerate(last) if mass > 0}
    for x, accepted in enumerate(min(a, b) for a, b in zip(p, q)):
        if k > 0 and accepted > 0:
            rest = right_law(tables, (*prefix, x), k - 1)
            outcomes.update({(x, *tail): float(accepted) * mass for tail, mass in rest.items()})
    return outcomes
