"""The exact distribution of a stochastic program, by running it once for every way its random choices can fall.

A test of sampling code asks for thousands of samples and still answers "probably". A program that draws only through `choose`
has finitely many runs; `law` walks them all and adds up their probabilities, so a claim about a distribution becomes an equation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any


class TooManyRuns(RuntimeError):
    """The program has more runs than may be walked."""


class Choose:
    """The random source that `law` hands to the program. Replays a prefix of choices, then takes the first branch each time."""

    def __init__(self, script: list[int]):
        self._script = script
        self._step = 0
        self.weights: list[Sequence[float]] = []  # of the alternatives at each choice made so far
        self.probability: Any = 1

    @property
    def script(self) -> tuple[int, ...]:
        """The choices that this run repeats; behind them it takes the first alternative that has a probability."""
        return tuple(self._script)

    def categorical(self, p: Sequence[float]) -> int:
        """An index i with probability p[i]. Alternatives of probability 0 are never taken."""
        weights = [x if type(x) is float else x.item() if hasattr(x, "item") else x for x in p]
        if not weights or not min(weights) >= 0 or not abs(sum(weights) - 1) <= 1e-6:  # NaN may hide from min, but not from the sum
            if any(not x >= 0 for x in weights):
                raise ValueError(f"probabilities must be >= 0, got {weights}")
            raise ValueError(f"probabilities must sum to 1, got {sum(weights)} from {weights}")
        return self._branch(weights)

    def uniform_below(self, a: float) -> bool:
        """Whether a uniform number in [0, 1) falls below a: True with probability min(1, a)."""
        a = min(1, max(0, a.item() if hasattr(a, "item") else a))
        return self._branch([a, 1 - a]) == 0

    def uniform(self, cuts: Iterable[float] = ()) -> float:
        """A representative of the interval of [0, 1) in which a uniform number falls, when the interval is cut at `cuts`.

        Exact for a program whose outcome changes only at the cuts; the representative is the middle of the interval.
        """
        edges = sorted({0, 1, *(c for c in cuts if 0 < c < 1)})
        chosen = self._branch([right - left for left, right in zip(edges, edges[1:])])
        return (edges[chosen] + edges[chosen + 1]) / 2

    def _branch(self, weights: Sequence[float]) -> int:
        if self._step == len(self._script):
            self._script.append(next(i for i, w in enumerate(weights) if w > 0))
        chosen = self._script[self._step]
        self._step += 1
        self.weights.append(weights)
        self.probability *= weights[chosen]
        return chosen


def law(program: Callable[[Choose], Hashable], max_runs: int = 1_000_000) -> dict[Any, float]:
    """{outcome: probability} of `program(choose)`, exactly.

    The program must be deterministic but for `choose`, and its outcome hashable. Probabilities keep the type they were given
    in: Fractions stay exact, floats carry float64 rounding only.

    Raises:
        TooManyRuns: after max_runs runs, a RuntimeError; enumerate one step of the program, not the whole of it.
    """
    outcomes: dict[Any, float] = defaultdict(int)
    script: list[int] | None = []
    runs = 0
    while script is not None:
        if runs == max_runs:
            raise TooManyRuns(f"more than {max_runs} runs: enumerate a shorter program")
        choose = Choose(script)
        outcomes[program(choose)] += choose.probability
        runs += 1
        script = _next_script(script, choose.weights)
    return dict(outcomes)


def _next_script(script: list[int], weights: list[Sequence[float]]) -> list[int] | None:
    """The next run in depth-first order: the deepest choice that has an alternative left, moved on to it."""
    while script:
        later = [i for i in range(script[-1] + 1, len(weights[len(script) - 1])) if weights[len(script) - 1][i] > 0]
        if later:
            return [*script[:-1], later[0]]
        script.pop()
    return None


def law_distance(first: dict[Any, float], second: dict[Any, float]) -> float:
    """Total variation between two laws as returned by `law`; outcomes that one of them lacks have probability 0 there."""
    return float(sum(abs(first.get(o, 0) - second.get(o, 0)) for o in first.keys() | second.keys()) / 2)
