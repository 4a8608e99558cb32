"""PromptLookup: what followed the last few tokens when they stood in the text before? (Saxena 2023, prompt lookup decoding)"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specdec.distributions import Sampling
from specdec.drafters.base import Outcome
from specdec.models.transformer import Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms


@dataclass(frozen=True)
class PromptLookup:
    """Copies the continuation of the latest earlier occurrence of the text's last n tokens; the longest n that has one wins.

    The drafted tokens are point masses: nothing was drawn, so the rule accepts each with the target's own probability of it.

    Args:
        ngram: the longest suffix to look for, >= 1; shorter ones down to 1 token are tried after it.
        k: the most tokens to copy, >= 0.
        shortest: the shortest suffix to look for.
    """

    ngram: int = 3
    k: int = 8
    shortest: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.ngram:
            raise ValueError(f"1 <= shortest <= ngram is needed, got shortest {self.shortest} and ngram {self.ngram}")
        if self.k < 0:
            raise ValueError(f"k must be >= 0, got {self.k}")

    @property
    def max_nodes(self) -> int:
        return self.k

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _Proposer:
        return _Proposer(self, target.device)


class _Proposer:
    """Remembers where each n-gram last ended, so that a round costs the new tokens and not the whole text."""

    def __init__(self, drafter: PromptLookup, device: torch.device):
        self.drafter, self.device = drafter, device
        self.ends: dict[tuple[int, ...], int] = {}  # n-gram → index just behind its latest occurrence
        self.indexed = 0  # n-grams that end before this index are in the table

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        lengths = range(self.drafter.shortest, self.drafter.ngram + 1)
        # The suffix itself must not be in the table: it would be its own latest occurrence.
        for end in range(self.indexed + 1, len(committed)):
            for n in lengths:
                if n <= end:
                    self.ends[tuple(committed[end - n : end])] = end
        self.indexed = max(self.indexed, len(committed) - 1)
        copied: list[int] = []
        for n in reversed(lengths):
            end = self.ends.get(tuple(committed[-n:])) if n < len(committed) else None
            if end is not None:
                # Behind the last token the copy goes on in what it has copied itself: a repeated pattern continues.
                source = list(committed)
                for i in range(min(self.drafter.k, limit)):
                    source.append(source[end + i])
                copied = source[len(committed) :]
                break
        return TokenTree.chain(torch.tensor(copied, dtype=torch.long, device=self.device))

    def observe(self, outcome: Outcome) -> None:
        """An n-gram table reads tokens only."""
