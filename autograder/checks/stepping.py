"""Everything around one speculative step: models that are tables, two random sources, and the exact law of a step.

How a step that compares a *float* u with a threshold of its own is enumerated. `step_tables` cuts [0, 1) into cells whose ends are all the
thresholds that a right step can use. A right step does the same everywhere inside a cell, however it is written (u < p/q, u * q <= p,
1 - u < p/q, a draw by inverse CDF, in single precision or double). So any number of a cell may stand for it, if it keeps away from the ends
by more than rounding. `Enumeration.uniform` returns two numbers of each cell, INSIDE of either end, each with half of the cell's
length. If a threshold lies inside a cell, the two disagree, and the step is credited with half of the cell, which is not the
right probability; if it lies at a wrong end, the probability is wrong by whole cells. So TV = 0 holds for right steps in any style,
and for no other threshold.

Whoever draws tokens by inverse CDF, too, takes 2k + 1 uniform numbers. Where two numbers of each cell would be too many branches, one
stands for it, now near the left end, now near the right one, as the draws before it decide. For a right step that makes no
difference. A threshold inside a cell is then credited with the whole cell in some branches and with nothing in others; that both
kinds come to the right sum by chance, at every table, is not to be feared, and with one draft both numbers are tried.
"""

from __future__ import annotations

import operator
import random
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from autograder.checks.core import Signal, Wrong, call
from autograder.checks.step_tables import PREFIX, Tables
from autograder.inside import plain
from autograder.inside.lent import EXACT, MOST_DRAWS, Cells, Row, as_floats, pick, within
from specdec.law import Choose, TooManyRuns, law

ROWS = 1024  # steps whose random numbers are lent at once
MOST_RUNS = 50_000  # of a law; a step that draws no more than it needs has some thousands at most
AUDITED = 3  # branches of a law, of code in another process, before its enumeration and after it
SPARE = 2  # times the calls that a step needs are too many, where calls are not the question

# EXACT, 1e-6, is what a law may differ by: float32 code is right too; the smallest named mistake differs by 0.01.


class Models:
    """target(prefix) and draft(prefix) over tables, for one step. `answers` has what each was asked, each prefix once.

    most: of different prefixes, for each of the two; a step that asks about more is stopped.
    """

    def __init__(self, tables: Callable, most: dict[str, int] | None = None):
        self.tables, self.vocabulary, self.most = tables, len(tables(PREFIX)[0]), most or {}
        self.answers: dict[str, dict[tuple[int, ...], list[float]]] = {"target": {}, "draft": {}}

    def target(self, prefix: Sequence[int]) -> list[float]:
        return self._answer("target", prefix)

    def draft(self, prefix: Sequence[int]) -> list[float]:
        return self._answer("draft", prefix)

    def _answer(self, who: str, prefix: Sequence[int]) -> list[float]:
        try:
            key = tuple(map(operator.index, plain.shallow(prefix)))
        except (TypeError, plain.NotPlain):
            raise Wrong(
                f"{who}(prefix) was called with something that is no sequence of whole numbers",
                got=f"{who}({prefix!r})"[:200],
                hint="The prefix is a tuple of token ids. Longer prefixes are `prefix + (token,)`.",
            ) from None
        if key not in self.answers[who]:
            self.answers[who][key] = [float(x) for x in self.tables(key)[who == "draft"]]
            self.limit({who: len(self.answers[who])})
        return self.answers[who][key].copy()  # the student may change it

    def rows(self, prefixes: Sequence[tuple[int, ...]], k: int) -> Any:
        """Of both models, all that a step of k drafts may ask behind each prefix, as `inside.lent.known` reads it: lent, not asked."""
        import numpy as np  # as in Sampling.block

        tables = [[self.tables(behind) for behind in within(prefix, k, self.vocabulary)] for prefix in prefixes]
        return np.array([[[pair[who] for pair in row] for row in tables] for who in (0, 1)], dtype=float)

    def limit(self, asked: dict[str, int]) -> None:
        """Raises Wrong if so many prefixes are too many."""
        for who, number in asked.items():
            if number > self.most.get(who, number):
                raise Wrong(
                    f"{who} is called for {number} different prefixes in one step", f"at most {self.most[who]}",
                    hint="The draft runs once per drafted token; the target scores k + 1 positions and no others.",
                )  # fmt: skip

    def close(self, k: int) -> None:
        """After a step: it must have asked, and not about too much, even if it caught what stopped it."""
        self.limit({who: len(answers) for who, answers in self.answers.items()})
        for who, needed in (("target", True), ("draft", k > 0)):
            if needed and not self.answers[who]:
                raise Wrong(
                    "one token a step: the drafts are never used" if who == "draft" else f"your step never asks target, with k = {k}",
                    f"{who} is called in every step with k = {k}", "no call",
                    "A step knows p and q only from target(…) and draft(…), and they are others in the next step.",
                )  # fmt: skip


def calls(k: int, times: int = 1) -> dict[str, int]:
    """The most prefixes that a step may ask about: what it needs, or some `times` that."""
    return {"target": times * (k + 1), "draft": k if times == 1 else times * (k + 1)}


def plain_probabilities(probs: Any) -> list[float]:
    """Lists, tuples, numpy arrays and tensors as a list of floats, or Wrong with the reason why they are no distribution."""
    try:
        weights = as_floats(probs)
    except ValueError as error:
        name = "rng.categorical got something that is no list of probabilities"
        given = probs[:200] if isinstance(probs, str) else plain.shown(probs)
        hint = "Probabilities are numbers in a list, a tuple, an array or a tensor; text that looks like a number is none."
        raise Wrong(name, got=f"rng.categorical({given})", hint=hint) from error
    if weights and min(weights) >= 0 and abs(sum(weights) - 1) <= EXACT:
        return weights
    told = f"rng.categorical({[round(x, 4) for x in weights]})"
    if any(x != x for x in weights):
        raise Wrong("rng.categorical got NaN", got=told, hint="A residual without mass was divided by its sum, 0.")
    if min(weights, default=0.0) < -1e-9:
        raise Wrong("rng.categorical got a negative probability", got=told, hint="Clamp p - q at 0 before you normalise it.")
    if abs(sum(weights) - 1) > EXACT:
        name = f"rng.categorical got weights that are not normalised: they sum to {sum(weights):.4g}"
        raise Wrong(name, got=told, hint="Divide by the sum first.")
    return [max(0.0, x) for x in weights]


class Enumeration:
    """The rng under which `law` walks every branch of a step. See the module's text for `uniform`."""

    exposed = ("categorical", "uniform")  # to code in another process

    def __init__(self, choose: Choose, cells: Cells):
        self._choose, self._cells, self._uniforms, self._sum = choose, cells, 0, 0

    def categorical(self, probs: Any) -> int:
        return self._pick(plain_probabilities(probs))

    def uniform(self) -> float:
        self._uniforms += 1
        if self._uniforms > self._cells.most:
            raise TooManyUniforms
        before = self._sum
        return self._cells.number(self._pick(self._cells.weights), before)

    def _pick(self, weights: list[float]) -> int:
        if len(self._choose.weights) == MOST_DRAWS:
            raise TooManyDraws
        try:
            index = self._choose.categorical(weights)
        except IndexError:  # another number of alternatives than in the run that this one repeats
            raise OtherRandomness from None
        self._sum += index
        return index


class InverseCdf:
    """The same rng for a step of ours that draws its tokens from uniform numbers."""

    def __init__(self, rng: Any):
        self.uniform = rng.uniform

    def categorical(self, probs: Any) -> int:
        return pick(plain_probabilities(probs), self.uniform())


class Wandering(Choose):
    """Takes a branch at random, as likely as it is."""

    def __init__(self, draw: random.Random):
        super().__init__([])
        self._draw = draw

    def _branch(self, weights: Sequence[float]) -> int:
        self._script.append(pick(weights, self._draw.random()))
        return super()._branch(weights)


class TooManyUniforms(Signal):
    """Tokens are drawn by inverse CDF: right, but too many branches with two numbers of each cell."""


class TooManyDraws(Wrong):
    """Such a step cannot be enumerated."""

    def __init__(self) -> None:
        super().__init__(
            "your step draws too many random numbers", f"2k + 1 are enough; more than {MOST_DRAWS} are not followed",
            hint="One for each drafted token, one for each coin, one for the correction or the bonus. Do not draw until something fits.",
        )  # fmt: skip


class OtherRandomness(Wrong):
    """The step does not depend on rng alone."""

    def __init__(self) -> None:
        super().__init__(
            "your step draws random numbers elsewhere than from rng",
            hint="Take every coin from rng.uniform() and every token from rng.categorical(probs), nothing from random or numpy.",
        )


class Sampling:
    """Random numbers for many steps, a row of them for each, and, ROWS at a time, in advance."""

    exposed = ("block", "refuse", "exhausted")

    def __init__(self, seed: int | str, steps: int = 1):
        draw = random.Random(seed)
        self._numbers, self._lent = array("d", [draw.random() for _ in range(steps * MOST_DRAWS)]), 0
        self.refuse = plain_probabilities

    def block(self) -> Any:
        import numpy as np  # as bytes they travel fast; where nothing is lent to another process numpy may be missing

        first, self._lent = self._lent, self._lent + ROWS * MOST_DRAWS
        return np.array(self._numbers[first : self._lent])

    def exhausted(self) -> Any:
        raise TooManyDraws

    def row(self, step: int = 0) -> Row:
        """The rng of one step."""
        return Row(self._numbers, step * MOST_DRAWS, self.refuse, self.exhausted)


def emitted_tokens(step: Callable, prefix: tuple[int, ...], models: Models, k: int, rng: Any) -> tuple[int, ...]:
    """What one call of the student's step emitted, as a tuple of ints; Wrong if that is not 1 to k + 1 tokens, or the calls are wrong."""
    result = call(step, prefix, models.target, models.draft, k, rng, what=f"spec_step({prefix}, target, draft, {k}, rng)")
    tokens = as_tokens(result, prefix, models.vocabulary, k)
    models.close(k)
    return tokens


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
    step: Callable, prefixes: Sequence[tuple[int, ...]], tables: Callable, k: int, seed: str, audited: int = 15
) -> list[tuple[int, ...]]:
    """What one step after each prefix emitted.

    Of a function in another process all are asked for at once, with models and numbers lent to it (`inside.lent`). Then some, chosen at
    random, are run once more with every question answered here; they must emit the same.
    """
    rng = Sampling(seed, len(prefixes))

    def watched(i: int) -> tuple[int, ...]:
        return emitted_tokens(step, prefixes[i], Models(tables, calls(k, SPARE)), k, rng.row(i))

    session = getattr(step, "session", None)
    if session is None:
        return [watched(i) for i in range(len(prefixes))]
    models = Models(tables)
    found, odd = call(session.steps, step, prefixes, models, k, rng, what=f"{len(prefixes)} steps")
    known: dict[tuple, tuple[int, ...]] = {}  # few results differ
    for seen in dict.fromkeys((tuple(result), prefix) for result, prefix in zip(found, prefixes)):
        known[seen] = as_tokens(*seen, models.vocabulary, k)
    lent = [known[tuple(result), prefix] for result, prefix in zip(found, prefixes)]
    lent += [as_tokens(result, prefix, models.vocabulary, k) for result, prefix in zip(odd, prefixes[len(found) :])]
    if len(lent) != len(prefixes):
        raise Wrong("some steps gave no result", f"{len(prefixes)} results", str(len(lent)))
    chosen = random.Random(f"audit {seed}").sample(range(len(prefixes)), min(audited, len(prefixes)))
    if any(watched(i) != lent[i] for i in chosen):
        raise OtherRandomness
    return lent


def law_of_step(
    step: Callable, tables: Tables, prefix: tuple[int, ...], k: int, most: dict[str, int] | None = None
) -> dict[tuple, float]:
    """{emitted tuple: probability} of one call, exactly. most: as in Models, for each branch; a step's needs twice where it is left out."""
    most = most or calls(k, SPARE)
    for numbers in (2, 1):
        try:
            return _law(step, tables, prefix, k, most, (tables.cells, numbers))
        except TooManyUniforms:
            continue
    raise TooManyDraws


def _law(step: Callable, tables: Tables, prefix: tuple[int, ...], k: int, most: dict[str, int], cut: tuple[int, int]) -> dict:
    cells = Cells(*cut)

    def run(choose: Choose) -> tuple[int, ...]:
        return emitted_tokens(step, prefix, Models(tables, most), k, Enumeration(choose, cells))

    remote = Branches(step, prefix, Models(tables, most), k, cut, run) if getattr(step, "session", None) else None
    try:
        outcomes = law(remote.tokens if remote else run, MOST_RUNS)
    except TooManyRuns:
        raise TooManyDraws from None
    except IndexError:  # a run drew less often than the one that it repeats
        raise OtherRandomness from None
    if abs(sum(outcomes.values()) - 1) > EXACT:
        raise OtherRandomness
    if remote:
        remote.audit()
    return outcomes


class Branches:
    """The branches of a function in another process. Each request brings several; what they drew comes back, and is judged here.

    The other process has every model in its hands by then, says itself what it asked, and could make up the rest. So some branches are run
    question by question (`run`), with calls that are counted here: a few before anything of these tables is lent, when
    a step knows of them what it asks in this very branch; and a few at the end, of those that it has told of. Chance decides which. What
    they drew and emitted must be what the enumeration says of them.
    """

    def __init__(self, step: Any, prefix: tuple[int, ...], models: Models, k: int, cut: tuple[int, int], run: Callable[[Choose], tuple]):
        self._step, self._prefix, self._k, self._cut, self._run, self._lent = step, prefix, k, cut, run, False
        self._models, self._most = Models(models.tables), models
        self._come: dict[tuple[int, ...], tuple] = {}  # and not yet looked at
        self._told: dict[tuple[int, ...], tuple] = {}  # {script of a whole branch: (tokens, probability)}
        self._draw = random.Random(f"audit {models.tables.name}")
        self._seen = dict(self._watched(Wandering(self._draw)) for _ in range(AUDITED))

    def _watched(self, choose: Choose) -> tuple[tuple[int, ...], tuple]:
        tokens = self._run(choose)
        return choose.script, (tokens, choose.probability)

    def tokens(self, choose: Choose) -> tuple[int, ...]:
        """What the branch emitted that `choose` is to take."""
        script = choose.script
        if script not in self._come:
            asked = (self._step, self._prefix, self._models, self._k, script, not self._lent, self._cut)
            self._lent = True
            self._come |= call(self._step.session.branches, *asked, what=f"spec_step({self._prefix}, …)")
        if script not in self._come:
            raise OtherRandomness
        result, log, called, refused = self._come.pop(script)
        rng = Enumeration(choose, Cells(*self._cut))
        for weights in log:
            rng.uniform() if weights is None else rng.categorical(weights)
        if refused:
            raise OtherRandomness
        self._most.limit(dict(zip(("target", "draft"), called)))  # nobody says too much of himself
        tokens = as_tokens(result, self._prefix, self._models.vocabulary, self._k)
        self._told[choose.script] = tokens, choose.probability
        return tokens

    def audit(self) -> None:
        """After the enumeration."""
        scripts = self._draw.sample(list(self._told), min(AUDITED, len(self._told)))
        seen = [*self._seen.items(), *(self._watched(Choose(list(script))) for script in scripts)]
        if any(self._told.get(script) != branch for script, branch in seen):
            raise OtherRandomness
