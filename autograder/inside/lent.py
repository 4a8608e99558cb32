"""Models and randomness lent to the student's side for thousands of steps: every number still comes from the judge, in advance."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from . import plain

EXACT = 1e-6  # by which the sum of float32 probabilities may miss 1
INSIDE = 1e-4  # far above float32's rounding of a threshold, far below the width of a cell
MOST_DRAWS = 12  # of one step: 2k + 1 are needed, with k up to 3
MOST_BRANCHES = 4096  # that the uniform numbers of one step may open


class Cells:
    """[0, 1) cut into cells, and what stands for a uniform number in each: one or two numbers INSIDE of its ends.

    weights: the probability of each number; most: uniform numbers in one step.
    """

    def __init__(self, cells: int, numbers: int):
        self.cells, self.numbers = cells, numbers
        self.weights = [1 / (cells * numbers)] * (cells * numbers)
        self.most = next(n for n in range(MOST_DRAWS, 0, -1) if len(self.weights) ** n <= MOST_BRANCHES)

    def number(self, index: int, before: int) -> float:
        """Two numbers: inside of either end. One: of the end that the choices before it decide, so that it is now this, now that."""
        cell, right = divmod(index, 2) if self.numbers == 2 else (index, (index + before) % 2)
        return (cell + 1) / self.cells - INSIDE if right else cell / self.cells + INSIDE


def pick(weights: Sequence[float], u: float) -> int:
    """The index in whose part of [0, 1) the number u falls; never one of weight 0."""
    total, last = 0.0, 0
    for index, weight in enumerate(weights):
        if weight > 0:
            total, last = total + weight, index
            if u < total:
                return index
    return last


def as_floats(probs: Any) -> list[float]:
    """Of a list, a tuple, an array or a tensor: numbers by the rule for answers, `plain`.

    Raises:
        ValueError: if those are no numbers, text that looks like one among it.
    """
    if type(probs) is list and all(type(part) is float for part in probs):
        return probs.copy()
    return plain.vector(plain.plain(probs))


def _carried(probs: Any) -> Any:
    """What was no distribution, or how it is shown, which is none either."""
    try:
        return plain.plain(probs)
    except plain.NotPlain:
        return plain.shown(probs)


def within(prefix: Sequence[int], k: int, vocabulary: int) -> list[tuple[int, ...]]:
    """The prefix and everything that is up to k tokens longer: what a step of k drafts may ask about, in one order on both sides."""
    return [(*prefix, *tail) for length in range(k + 1) for tail in product(range(vocabulary), repeat=length)]


def known(prefixes: Sequence[Sequence[int]], k: int, rows: Any) -> list[dict[tuple[int, ...], list[float]]]:
    """{prefix: probabilities} of target and draft, out of rows (2, number of prefixes, what is `within` k of each, V), an array."""
    everything = [behind for prefix in prefixes for behind in within(prefix, k, rows.shape[-1])]
    return [dict(zip(everything, model.reshape(-1, model.shape[-1]).tolist())) for model in rows]


class Memo:
    """A model that is asked about each prefix once. `called`: the prefixes that the student's code asked about."""

    def __init__(self, ask: Callable[[Any], list[float]], known: dict[tuple[int, ...], list[float]] | None = None):
        self._ask, self._known, self.called = ask, {} if known is None else known, set()

    def __call__(self, prefix: Sequence[int]) -> list[float]:
        try:
            key = tuple(map(operator.index, prefix))
        except TypeError:
            return self._ask(prefix)  # the judge says what is wrong
        if key not in self._known:
            self._known[key] = self._ask(key)
        self.called.add(key)
        return self._known[key].copy()


class Row:
    """The rng of one step over numbers drawn in advance: MOST_DRAWS of them, from `start` on.

    refuse: gets weights that are no distribution; exhausted: is called when a step wants more numbers. Both raise.
    """

    exposed = ("categorical", "uniform")  # to code in another process

    def __init__(self, numbers: Sequence[float], start: int, refuse: Callable[[Any], Any], exhausted: Callable[[], Any]):
        self._numbers, self._at, self._end = numbers, start, start + MOST_DRAWS
        self._refuse, self._exhausted = refuse, exhausted

    def uniform(self) -> float:
        if self._at == self._end:
            return self._exhausted()
        self._at += 1
        return self._numbers[self._at - 1]

    def categorical(self, probs: Any) -> int:
        try:
            weights = as_floats(probs)
        except ValueError:
            return self._refuse(_carried(probs))
        if not weights or min(weights) < 0 or not abs(sum(weights) - 1) <= EXACT:
            weights = self._refuse(weights)
        return pick(weights, self.uniform())


class Refused(BaseException):
    """The judge will not like what was drawn from. Not an Exception, so that the student's code lets it through."""


class Scripted:
    """The rng of one branch of an enumeration: draws as the script has it, and behind its end the first alternative.

    log: the weights of every draw, None for a uniform number; chosen: what was taken of each.
    """

    def __init__(self, script: Sequence[int], cells: Cells):
        self._script, self._cells, self.log, self.chosen = script, cells, [], []

    def uniform(self) -> float:
        self.log.append(None)
        if self.log.count(None) > self._cells.most:
            raise Refused
        before = sum(self.chosen)
        return self._cells.number(self._pick(self._cells.weights), before)

    def categorical(self, probs: Any) -> int:
        try:
            weights = as_floats(probs)
        except ValueError:
            self.log.append(_carried(probs))
            raise Refused from None
        self.log.append(weights)
        if not weights or min(weights) < -1e-9 or not abs(sum(weights) - 1) <= EXACT:
            raise Refused
        return self._pick(weights)

    def _pick(self, weights: Sequence[float]) -> int:
        at = len(self.log) - 1
        if at == MOST_DRAWS:
            raise Refused
        index = self._script[at] if at < len(self._script) else next(i for i, weight in enumerate(weights) if weight > 0)
        if index >= len(weights):
            raise Refused
        self.chosen.append(index)
        return index

    def behind(self) -> list[list[int]]:
        """The scripts of the branches that come behind this one and leave it at one draw, the next one last: `law` goes the same way."""
        found = []
        for at, taken in enumerate(self.chosen):
            weights = self.log[at] or self._cells.weights
            found += [[*self.chosen[:at], index] for index in range(len(weights) - 1, taken, -1) if weights[index] > 0]
        return found

