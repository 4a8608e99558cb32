"""PromptLookup: what followed the last few tokens when they stood in the text before? (Saxena 2023, prompt lookup decoding)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec.config import check_whole
from specdec.device import upload
from specdec.distributions import Sampling
from specdec.drafters.base import Outcome
from specdec.models.transformer import Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms


@dataclass(frozen=True)
class PromptLookup:
    """Copies what followed the earlier occurrences of the text's last n tokens; the longest n that has one wins.

    The drafted tokens are point masses: nothing was drawn, so the rule accepts each with the target's own probability of it.

    Args:
        ngram: the longest suffix to look for, >= 1; shorter ones down to `shortest` tokens are tried after it.
        k: the most tokens to copy from behind one occurrence, >= 0.
        shortest: the shortest suffix to look for.
        candidates: how many occurrences to copy from, >= 1, the latest first. With more than one the copies make a tree: where they
            begin alike they share nodes.

    Raises:
        ValueError: if a number is out of its range.
    """

    ngram: int = 3
    k: int = 8
    shortest: int = 1
    candidates: int = 1

    def __post_init__(self) -> None:
        for name, least in (("ngram", 1), ("k", 0), ("shortest", 1), ("candidates", 1)):
            check_whole(name, getattr(self, name), least)
        if self.shortest > self.ngram:
            raise ValueError(f"1 <= shortest <= ngram is needed, got shortest {self.shortest} and ngram {self.ngram}")

    @property
    def max_nodes(self) -> int:
        return self.candidates * self.k

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _Proposer:
        return _Proposer(self, target.device)


class _Proposer:
    """Remembers where each n-gram ended, so that a round costs the new tokens and the draft, and not the whole text."""

    def __init__(self, drafter: PromptLookup, device: torch.device):
        self.drafter, self.device = drafter, device
        self.ends: dict[tuple[int, ...], int] = {}  # n-gram → index just behind its latest occurrence
        # earlier[n][end]: where the n-gram that ends there ended before that; 0: nowhere. Index 0 is no end.
        self.earlier: dict[int, list[int]] = {n: [0] for n in range(drafter.shortest, drafter.ngram + 1)}
        self.indexed = 0  # n-grams that end before or at this index are in the tables

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        self._index(committed)
        trie: dict[tuple[int, int], int] = {}  # (parent, token) → node, in the order of the nodes
        for end in self._occurrences(committed):
            node = -1
            for token in _continuation(committed, end, min(self.drafter.k, limit)):
                node = trie.setdefault((node, token), len(trie))
        tokens = upload(torch.tensor([token for _, token in trie], dtype=torch.long), self.device)
        parents = [parent for parent, _ in trie]
        return TokenTree.chain(tokens) if parents == list(range(-1, len(trie) - 1)) else TokenTree(tokens, parents)

    def _index(self, committed: Sequence[int]) -> None:
        # The suffix itself must not be in the tables: it would be its own latest occurrence.
        for end in range(self.indexed + 1, len(committed)):
            for n, earlier in self.earlier.items():
                if n > end:
                    earlier.append(0)
                    continue
                gram = tuple(committed[end - n : end])
                earlier.append(self.ends.get(gram, 0))
                self.ends[gram] = end
        self.indexed = max(self.indexed, len(committed) - 1)

    def _occurrences(self, committed: Sequence[int]) -> list[int]:
        """Where the earlier occurrences of the longest suffix that has one end, the latest first."""
        found: list[int] = []
        for n in sorted(self.earlier, reverse=True):
            end = self.ends.get(tuple(committed[-n:]), 0) if n < len(committed) else 0
            while end and len(found) < self.drafter.candidates:
                found.append(end)
                end = self.earlier[n][end]
            if found:
                break
        return found

    def observe(self, outcome: Outcome) -> None:
        """An n-gram table reads tokens only."""


def _continuation(committed: Sequence[int], end: int, k: int) -> list[int]:
    """The k tokens from `end` on. Behind the last one the copy goes on in what it has copied itself: a repeated pattern continues."""
    copied: list[int] = []
    for at in range(end, end + k):
        copied.append(committed[at] if at < len(committed) else copied[at - len(committed)])
    return copied
