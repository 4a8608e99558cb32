"""Models that are tables: p and q after every prefix, for the exact law of a step.

Each table is cut into `cells`: all its probabilities are multiples of 1/cells, and so is every threshold that a right step can use, however
it is written: each p(x)/q(x) below 1, its complement, and the cumulative sums of p, q and the residual, in any order. `stepping` says what
that is good for. The more drafts a step has, the fewer cells its table can afford: sixths with one draft, quarters with two, halves
with three. Sixths tell rules of acceptance and residuals from each other; the others tell positions from each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

# Prefixes are longer than a step's output, so that a step that returns its prefix is seen.
PREFIX, *_ = PREFIXES = ((0, 1, 2, 0, 1), (3, 3, 1, 2, 0), (2, 0, 3, 1, 1))
VOCABULARY = 4


@dataclass(frozen=True)
class Tables:
    """Called with a prefix: (p, q), each a sequence of V probabilities. name: those of one name are the same."""

    pair: Callable[[tuple[int, ...]], tuple[Sequence[Any], Sequence[Any]]] = field(compare=False)
    cells: int
    name: str

    def __call__(self, prefix: tuple[int, ...]) -> tuple[Sequence[Any], Sequence[Any]]:
        return self.pair(prefix)


def constant(p: Sequence[Any], q: Sequence[Any], cells: int = 2) -> Tables:
    """The same p and q after every prefix."""
    return Tables(lambda prefix: (p, q), cells, f"{p} {q}")


# (p, q) by draft length. The first three of each tell the mistakes of the catalogue from the right rule and from each other. They stand at
# the prefix of a case; what follows a drafted token is drawn from the whole list.
_CELLS = {1: 6, 2: 4, 3: 2}
_FIRST = 3
_PAIRS = {
    1: [
        ((3, 2, 1, 0), (1, 3, 0, 2)),
        ((3, 1, 1, 1), (1, 0, 2, 3)),
        ((3, 2, 1, 0), (1, 1, 3, 1)),
        ((1, 2, 2, 1), (3, 2, 1, 0)),  # a token that the draft never proposes
        ((0, 3, 2, 1), (2, 1, 3, 0)),  # and one that the target never emits
        ((3, 2, 1, 0), (6, 0, 0, 0)),  # a draft without doubt
        ((2, 2, 1, 1), (2, 2, 1, 1)),  # nothing is left for the residual
    ],
    2: [
        ((2, 1, 1, 0), (1, 1, 2, 0)),
        ((1, 1, 1, 1), (2, 2, 0, 0)),
        ((2, 1, 0, 1), (1, 2, 1, 0)),
        ((2, 2, 0, 0), (1, 2, 1, 0)),
        ((1, 3, 0, 0), (2, 2, 0, 0)),
        ((3, 1, 0, 0), (4, 0, 0, 0)),
        ((2, 1, 1, 0), (2, 1, 1, 0)),
    ],
    3: [
        ((1, 1, 0, 0), (1, 0, 1, 0)),
        ((1, 1, 0, 0), (2, 0, 0, 0)),
        ((1, 1, 0, 0), (1, 0, 0, 1)),
        ((2, 0, 0, 0), (1, 1, 0, 0)),
        ((1, 1, 0, 0), (1, 1, 0, 0)),
        ((1, 1, 0, 0), (0, 1, 1, 0)),
    ],
}
GRID = tuple((k, number) for k, count in ((1, 3), (2, 3), (3, 4)) for number in range(count))  # (k, number) of each case


def grid_tables(seed: int, k: int, number: int = 0) -> Tables:
    """p and q that depend on the whole prefix, for drafts of k tokens. Nothing of one table can be learned from another."""
    cells, pairs, name = _CELLS[k], _PAIRS[k], f"{seed} {k} {number}"

    @cache
    def pair(prefix: tuple[int, ...]) -> tuple[list[Fraction], list[Fraction]]:
        draw = random.Random(f"{name} {prefix}")
        p, q = pairs[(seed + number) % _FIRST] if prefix in PREFIXES else draw.choice(pairs)
        order = draw.sample(range(VOCABULARY), VOCABULARY)
        return [Fraction(p[i], cells) for i in order], [Fraction(q[i], cells) for i in order]

    return Tables(pair, cells, name)


def grid_cases(seed: int) -> Iterator[tuple[Tables, tuple[int, ...], int]]:
    """(tables, prefix, k) of the exact law."""
    for k, number in GRID:
        yield grid_tables(seed, k, number), PREFIXES[number % len(PREFIXES)], k


def coarse_cases(seed: int) -> Iterator[tuple[Tables, tuple[int, ...], int]]:
    """(tables, prefix, k) for which two numbers of each cell are affordable whoever draws tokens from them, too; the quickest first."""
    for k, count in ((1, 3), (2, 6)):
        for number in range(count):
            yield grid_tables(seed, 3, number), PREFIXES[number % len(PREFIXES)], k
    yield from (case for case in grid_cases(seed) if case[2] == 1)


def right_law(tables: Callable, prefix: tuple[int, ...], k: int) -> dict[tuple, float]:
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


# -- for samples -------------------------------------------------------------------------------------------------------

# (p, q) by the last token. More than half of a row lie on one token, another one after each, so that a text goes round: then all
# tokens come about equally often, and 50,000 of them measure TV well below 0.01. A row that is as flat and does not depend on the
# last token would miss that now and then: with N independent tokens the noise of a cell is √(p(1 - p)/N). A draft is accepted with
# probability 0.6 or 0.7, and every residual has two tokens.
_ROUND = {
    None: ([0.55, 0.25, 0.2], [0.35, 0.15, 0.5]),
    0: ([0.1, 0.7, 0.2], [0.4, 0.55, 0.05]),
    1: ([0.2, 0.1, 0.7], [0.1, 0.5, 0.4]),
    2: ([0.7, 0.2, 0.1], [0.5, 0.1, 0.4]),
}


def text_tables(seed: int) -> Callable:
    """Models for sampling; a seed names the tokens anew and changes nothing else, so that every seed is equally hard."""
    order = random.Random(f"round {seed}").sample(range(3), 3)  # token t of the table is called order[t]
    back = [order.index(t) for t in range(3)]

    @cache
    def pair(prefix: tuple[int, ...]) -> tuple[list[float], list[float]]:
        p, q = _ROUND[back[prefix[-1]] if len(prefix) > len(PREFIX) else None]
        return [p[i] for i in back], [q[i] for i in back]

    return pair


def text_law(tables: Callable, prefix: tuple[int, ...], length: int) -> dict[tuple[int, ...], float]:
    """The target's exact law of so many tokens in a row."""
    if length == 0:
        return {(): 1.0}
    return {
        (x, *rest): mass * other
        for x, mass in enumerate(tables(prefix)[0])
        for rest, other in text_law(tables, (*prefix, x), length - 1).items()
    }
