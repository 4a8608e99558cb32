"""DraftModel: a smaller model of the same vocabulary guesses what follows, token by token (Leviathan et al. 2211.17192)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

import torch
from torch import Tensor

from specdec.config import check_whole
from specdec.device import upload
from specdec.distributions import Sampling
from specdec.drafters.base import Outcome
from specdec.drafters.growing import Level, Shape, draft_uniforms, grow
from specdec.models.transformer import Transformer, check_model
from specdec.tree import Siblings, TokenTree
from specdec.uniforms import Uniforms


@dataclass(frozen=True)
class DraftModel:
    """A draft model proposes a chain, or a tree of given shape (SpecInfer, Miao et al. 2305.09781; Sequoia, Chen et al. 2402.12374).

    Args:
        model: any model whose ids mean what the target's mean; `target.truncated(n)` is one.
        k: length of the chain, >= 0.
        tree: parents of a tree's nodes, level by level, in place of the chain (`full_tree([2, 2])`, say).
        siblings: how a node's children are drawn from q, one after the other without replacement, or independently.

    Raises:
        ValueError: if the model is none, k is no whole number >= 0, `siblings` is unknown, the tree is no shape (growing.py), or a node
            has more children than the vocabulary has tokens.
    """

    model: Transformer
    k: int = 4
    tree: Sequence[int] | None = None
    siblings: Siblings = "without_replacement"
    shape: Shape = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_model("draft", self.model)
        check_whole("k", self.k, 0)
        if self.siblings not in get_args(Siblings):
            raise ValueError(f"siblings must be one of {get_args(Siblings)}, got {self.siblings!r}")
        object.__setattr__(self, "shape", Shape(range(-1, self.k - 1) if self.tree is None else self.tree))
        widest, V = max((level.width for level in self.shape.levels), default=0), self.model.config.vocab_size
        if widest > V:
            raise ValueError(f"a node of the tree has {widest} children, and the vocabulary has {V} tokens")

    @property
    def max_nodes(self) -> int:
        return len(self.shape)

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _Proposer:
        """Raises ValueError if the vocabularies differ or the draft's context is shorter than max_length."""
        ours, theirs = self.model.config, target.config
        if ours.vocab_size != theirs.vocab_size:
            raise ValueError(f"the draft has a vocabulary of {ours.vocab_size} tokens and the target of {theirs.vocab_size}")
        pair = self.model.tokenizer, target.tokenizer
        if None not in pair and not pair[0].same_vocabulary(pair[1]):
            raise ValueError("the draft's tokenizer gives the same ids another meaning than the target's")
        if max_length > ours.max_length:
            raise ValueError(f"the request may reach {max_length} tokens and the draft's context ends at {ours.max_length}")
        return _Proposer(self, sampling, max_length)


class _Proposer:
    def __init__(self, drafter: DraftModel, sampling: Sampling, max_length: int):
        self.drafter, self.model, self.sampling = drafter, drafter.model, sampling
        self.cache = self.model.new_cache(max_length + drafter.max_nodes)
        self.root = 0  # committed tokens when the present tree was drafted; node i lies in slot root + i

    @torch.inference_mode()
    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        shape = self.drafter.shape.cut(limit)
        if not len(shape):
            return TokenTree.empty(self.model.device)
        self.root = len(committed)
        # What the cache lacks: the newest token, and after a full acceptance the last drafted one too.
        new = upload([committed[self.cache.length :]], self.model.device)
        u = draft_uniforms(uniforms, len(committed), len(shape), self.sampling, self.model.device)
        logits = self.model(new, self.cache, rows=1).logits[0]
        return grow(shape, logits, self._advance, self.sampling, u, self.drafter.siblings)

    def _advance(self, tokens: Tensor, level: Level) -> Tensor:
        if self.drafter.shape.is_chain:
            return self.model(tokens[None], self.cache).logits[0]
        positions = torch.full_like(tokens, self.root - 1 + level.depth)
        return self.model(tokens[None], self.cache, positions, upload(level.mask, tokens.device)).logits[0]

    def observe(self, outcome: Outcome) -> None:
        """The cache keeps the accepted drafts that were run through the model; the last level never was."""
        kept = [self.root + node for node in outcome.accepted if self.root + node < self.cache.length]
        if kept:
            self.cache.keep([self.root - 1, *kept])
        else:
            self.cache.rollback(min(self.cache.length, self.root))
