"""Small models whose distributions depend on the context, and `generate` under `law`: its exact output distribution.

`generate` consumes uniforms, and `law` enumerates choices. `EnumeratedUniforms` stands between them: at each draw it works out, from
tables and with arithmetic of its own, the intervals of [0, 1) that a right loop tells apart, lets `law` pick one, and hands the loop
a number inside it. With numbers next to the lower and next to the upper edge of each interval, the loop's thresholds are
pinned from both sides: the law comes out as the target's only if every threshold lies exactly where it should.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from specdec import decoding
from specdec.config import Config
from specdec.distributions import Sampling
from specdec.law import law
from specdec.models.transformer import Transformer, random_model
from specdec.uniforms import Purpose


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


class EnumeratedUniforms:
    """Stands in for `Uniforms`. p, q: probability tables; q None: the drafted tokens are point masses. edge: 0 (lower) or 1."""

    def __init__(self, choose, committed: list[int], p, q, edge: int):
        self.choose, self.committed, self.p, self.q, self.edge = choose, committed, p, q, edge
        self.drafted: list[int] = []

    def draw(self, purpose: Purpose, position: int, n: int) -> torch.Tensor:
        assert position == len(self.committed), "a round must key its draws by the number of committed tokens"
        numbers = {Purpose.DRAFT: self._draft, Purpose.VERIFY: self._coins, Purpose.NEXT: self._next}[purpose](n)
        return torch.tensor(numbers, dtype=torch.float64)

    def _inside(self, lower: float, upper: float) -> float:
        nudge = min(1e-9, (upper - lower) / 4)
        return upper - nudge if self.edge else lower + nudge

    def _category(self, probabilities: np.ndarray) -> tuple[int, float]:
        token = self.choose.categorical(probabilities)
        cdf = np.concatenate([[0], np.cumsum(probabilities)])
        return token, self._inside(cdf[token], cdf[token + 1])

    def _context(self, i: int) -> tuple[int, ...]:
        return (*self.committed, *self.drafted[:i])

    def _draft(self, n: int) -> list[float]:
        self.drafted, numbers = [], []
        for i in range(n):
            token, number = self._category(self.q(self._context(i)))
            self.drafted.append(token)
            numbers.append(number)
        return numbers

    def _coins(self, n: int) -> list[float]:
        numbers = []
        self.count = 0
        for i in range(n):
            if self.count < i:  # behind a rejection a coin decides nothing
                numbers.append(0.5)
                continue
            x = self.drafted[i]
            p, q = self.p(self._context(i))[x], 1.0 if self.q is None else self.q(self._context(i))[x]
            threshold = min(1.0, p / q)
            accepted = self.choose.uniform_below(threshold)
            self.count += accepted
            numbers.append(self._inside(0, threshold) if accepted else self._inside(threshold, 1))
        return numbers

    def _next(self, n: int) -> list[float]:
        p = self.p(self._context(self.count))
        if self.count < len(self.drafted):
            q = np.eye(len(p))[self.drafted[self.count]] if self.q is None else self.q(self._context(self.count))
            excess = np.maximum(p - q, 0)
            p = excess / excess.sum()
        return [self._category(p)[1]]


class Recorded:
    """A proposer that tells the enumeration which tokens it proposed without drawing (prompt lookup)."""

    def __init__(self, proposer, uniforms: EnumeratedUniforms):
        self.proposer, self.uniforms = proposer, uniforms

    def propose(self, committed, limit, uniforms):
        tree = self.proposer.propose(committed, limit, uniforms)
        self.uniforms.drafted = tree.tokens.tolist()
        return tree

    def observe(self, outcome):
        self.proposer.observe(outcome)


def law_of_generate(target, drafter, draft_model, prompt: tuple[int, ...], length: int, sampling: Sampling, edge: int) -> dict:
    """The exact joint law of the first `length` tokens that the real loop emits."""
    p = probability_table(target, sampling)
    q = probability_table(draft_model, sampling) if draft_model is not None else None

    def program(choose) -> tuple[int, ...]:
        committed = list(prompt)
        uniforms = EnumeratedUniforms(choose, committed, p, q, edge)
        longest = len(prompt) + length
        proposer = Recorded(drafter.start(target, sampling, longest), uniforms) if drafter else None
        cache = target.new_cache(longest)
        for _ in decoding.rounds(target, cache, [decoding.Request(committed, longest, proposer, uniforms)], sampling):
            uniforms.drafted = []
        return tuple(committed[len(prompt) :])

    return law(program)
