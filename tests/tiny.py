"""Small models whose distributions depend on the context, and the loop under `law`: the exact distribution of what it emits.

The loop consumes uniforms, and `law` enumerates choices. `EnumeratedUniforms` stands between them: at each draw it works out, from
tables and with arithmetic of its own, the intervals of [0, 1) that a right loop tells apart, lets `law` pick one, and hands the loop
a number inside it. With numbers next to the lower and next to the upper edge of each interval, the loop's thresholds are
pinned from both sides: the law comes out as the target's only if every threshold lies exactly where it should.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache

import numpy as np
import torch

from specdec.config import Config
from specdec.decoding import Request, round_of, rounds
from specdec.distributions import Sampling
from specdec.law import law
from specdec.models.transformer import Transformer, random_model
from specdec.uniforms import Purpose, Uniforms

# A drafter's distribution of the token behind (committed, drafted path); None if it draws nothing.
DraftTable = Callable[[tuple[int, ...], tuple[int, ...]], np.ndarray] | None


def tiny_model(seed: int, vocab_size: int = 3, layers: int = 2, scale: float = 3.0, dtype=torch.float64) -> Transformer:
    config = Config(vocab_size, 16, layers, 4, 2, 4, 32, max_length=256)
    return random_model(config, seed, dtype, scale)


def probability_table(model: Transformer, sampling: Sampling):
    """prefix (tuple of ids) → the model's next-token distribution, a float64 array, from a fresh prefill each time."""

    @cache
    def table(prefix: tuple[int, ...]) -> np.ndarray:
        with torch.inference_mode():
            output = model(torch.tensor([prefix]), model.new_cache(len(prefix)), rows=1)
        return sampling.probabilities(output.logits[0, -1]).double().numpy()

    return table


def reference_law(p, prompt: tuple[int, ...], length: int) -> dict[tuple[int, ...], float]:
    """The target's own joint distribution of the next `length` tokens, by the chain rule."""
    joint = {(): 1.0}
    for _ in range(length):
        joint = {
            (*tokens, x): mass * float(p(prompt + tokens)[x])
            for tokens, mass in joint.items()
            for x in np.flatnonzero(p(prompt + tokens))
        }
    return joint


def excess(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    rest = np.maximum(p - q, 0)
    return rest / rest.sum() if rest.sum() > 0 else p


class EnumeratedUniforms:
    """Stands in for `Uniforms`.

    Args:
        p: the target's probability table.
        q: the drafter's; None: its tokens are point masses.
        parents, siblings: of the tree that it draws, for q.
        edge: 0 (lower) or 1.
    """

    def __init__(self, choose, committed: list[int], p, q: DraftTable, parents, siblings: str, edge: int):
        self.choose, self.committed, self.p, self.q, self.edge = choose, committed, p, q, edge
        self.parents, self.siblings = list(parents), siblings
        self.tokens: list[int] = []
        self.left = None  # of p, once the coins of a tree have decided

    def draw(self, purpose: Purpose, position: int, n: int) -> torch.Tensor:
        assert position == len(self.committed), "a round must key its draws by the number of committed tokens"
        numbers = {Purpose.DRAFT: self._draft, Purpose.VERIFY: self._coins, Purpose.NEXT: self._next}[purpose](n)
        return torch.tensor(numbers, dtype=torch.float64)

    def proposed(self, tree) -> None:
        """The tree that came of the draws; from a drafter that draws nothing, the first that is heard of it."""
        if self.q is None:
            self.tokens, self.parents = tree.tokens.tolist(), tree.parents.tolist()
        else:
            assert self.tokens == tree.tokens.tolist(), "the drafter did not draw from the distribution that it declares"
            assert self.parents[: len(tree)] == tree.parents.tolist()

    def _inside(self, lower: float, upper: float) -> float:
        nudge = min(1e-9, (upper - lower) / 4)
        return upper - nudge if self.edge else lower + nudge

    def _category(self, probabilities: np.ndarray) -> tuple[int, float]:
        token = self.choose.categorical(probabilities)
        cdf = np.concatenate([[0], np.cumsum(probabilities)])
        return token, self._inside(cdf[token], cdf[token + 1])

    def _path(self, node: int) -> tuple[int, ...]:
        return () if node < 0 else (*self._path(self.parents[node]), self.tokens[node])

    def _before(self, node: int) -> np.ndarray:
        """What a node was drawn from: q, less its elder siblings if they were drawn without replacement; 0 when that runs out."""
        q = self.q(tuple(self.committed), self._path(self.parents[node])).copy()
        if self.siblings == "without_replacement":
            q[[self.tokens[i] for i in range(node) if self.parents[i] == self.parents[node]]] = 0
        return q / q.sum() if q.sum() > 0 else q

    def _draft(self, n: int) -> list[float]:
        if self.q is None:
            return [0.5] * n
        self.tokens, numbers = [], []
        for node in range(n):
            q = self._before(node)
            token, number = self._category(q) if q.sum() > 0 else (0, 0.5)
            self.tokens.append(token)
            numbers.append(number)
        return numbers

    def _coins(self, n: int) -> list[float]:
        """The walk, from the rule's definition: a coin for every child that is tried, 0.5 for the others, which decide nothing."""
        coins, at = [0.5] * n, -1
        while True:
            self.left = self.p((*self.committed, *self._path(at)))
            for child in [i for i in range(len(self.tokens)) if self.parents[i] == at]:
                x = self.tokens[child]
                q = np.zeros_like(self.left) if self.q is None else self._before(child)
                q = q if q.sum() > 0 else np.eye(len(q))[x]
                threshold = min(1.0, self.left[x] / q[x])
                if self.choose.uniform_below(threshold):
                    coins[child], at = self._inside(0, threshold), child
                    break
                coins[child] = self._inside(threshold, 1)
                self.left = excess(self.left, q)
            else:
                return coins

    def _next(self, n: int) -> list[float]:
        left, self.left = self.left, None
        return [self._category(self.p(tuple(self.committed)) if left is None else left)[1]]


class Recorded:
    """A proposer that tells the enumeration which tree it proposed."""

    def __init__(self, proposer, uniforms: EnumeratedUniforms):
        self.proposer, self.uniforms = proposer, uniforms

    def propose(self, committed, limit, uniforms):
        tree = self.proposer.propose(committed, limit, uniforms)
        self.uniforms.proposed(tree)
        return tree

    def observe(self, outcome):
        self.proposer.observe(outcome)


def draws(drafter, sampling: Sampling) -> bool:
    """Whether the drafter draws its tokens: it has a shape to fill, and something to draw."""
    return getattr(drafter, "shape", None) is not None and not sampling.greedy


def modules_of(drafter) -> list[torch.nn.Module]:
    """The models and heads of a drafter, and of those that it is made of."""
    parts = list(vars(drafter).values())
    return [p for p in parts if isinstance(p, torch.nn.Module)] + [m for p in parts if hasattr(p, "max_nodes") for m in modules_of(p)]


class Leading:
    """Uniforms that lead a drafter's draws along a path."""

    def __init__(self, numbers: list[float]):
        self.numbers = numbers

    def draw(self, purpose: Purpose, position: int, n: int) -> torch.Tensor:
        return torch.tensor(self.numbers[:n], dtype=torch.float64)


def declared_table(proposer, text: list[int], parents: list[int], limit: int, shared: dict) -> DraftTable:
    """What a drafter declares to draw from behind each path, for those whose own tests compare it with a slow twin."""

    @cache
    def table(committed: tuple[int, ...], path: tuple[int, ...]) -> np.ndarray:
        numbers, node = [0.5] * len(parents), -1
        for token in (*path, None):
            tree = deepcopy(proposer, dict(shared)).propose(list(text), limit, Leading(numbers))
            q = tree.q[node + 1].double().numpy()
            if token is None:
                return q
            node = parents.index(node)  # the first child
            numbers[node] = q[: token + 1].sum() - q[token] / 2
        raise AssertionError

    return table


def law_of_round(target, drafter, prompt, history: int, depth: int, sampling: Sampling, edge: int) -> tuple[dict, dict]:
    """The exact law of the next depth + 1 tokens, when one round of the real loop emits the first of them and the target the rest;
    and the target's own law of them.

    The round comes after `history` rounds with ordinary uniforms, so that the drafter has seen rejections and acceptances. What
    holds for a round behind any text holds, by induction, for all rounds together.
    """
    p, longest = probability_table(target, sampling), len(prompt) + 40
    cache, text = target.new_cache(longest + drafter.max_nodes), list(prompt)
    proposer = drafter.start(target, sampling, longest)
    request = Request(text, longest, proposer, Uniforms(7), getattr(drafter, "layers", ()))
    steps = rounds(target, cache, [request], sampling)
    for _ in range(history + 1):  # at least one: the prompt must be in the cache
        next(steps)
    shared = {id(module): module for module in [target, *modules_of(drafter)]}
    parents, table = [], None
    if draws(drafter, sampling):
        parents = drafter.shape.parents
        if hasattr(drafter, "model"):
            prefixes = probability_table(drafter.model, sampling)
            table = lambda committed, path: prefixes(committed + path)  # noqa: E731
        else:
            table = declared_table(proposer, text, parents, depth, shared)

    def program(choose) -> tuple[int, ...]:
        own_cache, own_proposer = deepcopy((cache, proposer), dict(shared))
        committed = list(text)
        source = EnumeratedUniforms(
            choose, committed, p, table, parents, getattr(drafter, "siblings", "without_replacement"), edge
        )
        again = Request(committed, len(text) + depth + 1, Recorded(own_proposer, source), source, request.layers)
        with torch.inference_mode():
            round_of(target, own_cache, [again], sampling)
        return tuple(committed[len(text) :])

    completed: dict[tuple[int, ...], float] = {}
    for tokens, mass in law(program).items():
        for rest, share in reference_law(p, (*text, *tokens), depth + 1 - len(tokens)).items():
            completed[tokens + rest] = completed.get(tokens + rest, 0) + mass * share
    return completed, reference_law(p, tuple(text), depth + 1)


def law_of_generate(target, drafter, table: DraftTable, prompt: tuple[int, ...], length: int, sampling: Sampling, edge: int) -> dict:
    """The exact joint law of the first `length` tokens that the real loop emits, all rounds enumerated."""
    p = probability_table(target, sampling)
    parents = drafter.shape.parents if drafter and draws(drafter, sampling) else []

    def program(choose) -> tuple[int, ...]:
        committed = list(prompt)
        longest = len(prompt) + length
        source = EnumeratedUniforms(choose, committed, p, table if parents else None, parents, "without_replacement", edge)
        proposer = Recorded(drafter.start(target, sampling, longest), source) if drafter else None
        for _ in rounds(target, target.new_cache(longest), [Request(committed, longest, proposer, source)], sampling):
            source.tokens = []
        return tuple(committed[len(prompt) :])

    return law(program)
