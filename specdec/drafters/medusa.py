"""Medusa: heads on the target's own features guess several tokens ahead, all at once (Cai et al. 2401.10774)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec.config import check_size
from specdec.device import upload
from specdec.distributions import Sampling
from specdec.drafters.base import Outcome
from specdec.drafters.growing import Shape
from specdec.drafters.heads import DraftHead, check_made_for, randomise
from specdec.models.linear import Linear
from specdec.models.transformer import Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms


@dataclass(frozen=True)
class MedusaConfig:
    """vocab_size, hidden_size: the target's. heads: how many tokens ahead. blocks: residual blocks of each head.

    own_head: whether each head has an LM head of its own (V · D numbers each), or all share the target's.

    Raises:
        ValueError: if a number is below 1.
    """

    vocab_size: int
    hidden_size: int
    heads: int = 3
    blocks: int = 1
    own_head: bool = False
    version = 1  # Medusa-1: the target stays as it is, so its text does too

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "heads", "blocks"):
            check_size(name, getattr(self, name))

    def check(self, target: Transformer) -> None:
        """Raises ValueError if the target has another vocabulary or hidden size."""
        check_made_for({"vocab_size": self.vocab_size, "hidden_size": self.hidden_size}, target)

    @classmethod
    def from_dict(cls, fields: dict) -> MedusaConfig:
        return cls(**fields)


class ResidualBlock(nn.Module):
    """h + SiLU(W h) (2401.10774, section 2.1.1). W starts at zero: an untrained block changes nothing."""

    def __init__(self, size: int):
        super().__init__()
        self.linear = Linear(size, size)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


class MedusaHeads(DraftHead):
    """Head k of K, counted from 1, reads the target's feature of position t and predicts token t + 1 + k; the target itself predicts
    token t + 1 (Medusa-1, 2401.10774, section 2.1.1: residual blocks, then an LM head).

    As built from a config, the blocks are the identity; own LM heads are not set, `random` and `untrained` do that.
    """

    kind, config_class = "medusa", MedusaConfig

    def __init__(self, config: MedusaConfig):
        super().__init__(config)
        D = config.hidden_size
        self.blocks = nn.ModuleList(nn.Sequential(*(ResidualBlock(D) for _ in range(config.blocks))) for _ in range(config.heads))
        if config.own_head:
            self.lm_heads = nn.ModuleList(Linear(D, config.vocab_size) for _ in range(config.heads))

    @classmethod
    def random(
        cls, target: Transformer, heads: int = 3, blocks: int = 1, own_head: bool = False, seed: int = 0, scale: float = 1.0
    ) -> MedusaHeads:
        """Heads that know nothing, for tests; in the target's dtype and on its device."""
        made = cls(MedusaConfig(target.config.vocab_size, target.config.hidden_size, heads, blocks, own_head))
        randomise(made, seed, scale)
        return made.to(target.device, target.dtype).eval()

    @classmethod
    def untrained(cls, target: Transformer, heads: int = 3, blocks: int = 1, own_head: bool = False) -> MedusaHeads:
        """Heads as training begins: each says what the target's own head says. Own LM heads are copies of the target's.

        Raises:
            ValueError: if own_head is asked for and the target's head is packed, so that it cannot be copied.
        """
        made = cls(MedusaConfig(target.config.vocab_size, target.config.hidden_size, heads, blocks, own_head))
        if own_head:
            if target.head.weight is None:
                raise ValueError("the target's LM head is packed and cannot be copied; load the target in float32")
            for head in made.lm_heads:
                head.weight.data.copy_(target.head.weight)
        return made.to(target.device, target.dtype)

    def forward(self, target: Transformer, hidden: Tensor, heads: int | None = None) -> Tensor:
        """Logits of the first `heads` heads (all if None).

        hidden: (..., D) features (`Output.hidden`) → (..., heads, V).
        """
        features = [block(hidden) for block in self.blocks[:heads]]
        if not self.config.own_head:
            return target.head(torch.stack(features, -2))
        return torch.stack([head(x) for head, x in zip(self.lm_heads, features, strict=False)], -2)


@dataclass(frozen=True)
class Medusa:
    """Medusa's tree: a node of depth d that is its parent's child number r is head d's r-th most probable token.

    The heads do not see each other's guesses, so a node's token depends on its depth and its rank alone (2401.10774, section 2.1.2).
    The children are point masses at every temperature: the text is exactly the target's. The paper's typical acceptance would not
    be, and is not built.

    Args:
        heads: any number of MedusaHeads.
        tree: parents of the nodes, level by level (`full_tree([3, 2, 1])`; `full_tree([1, 1, 1])` is a chain).

    Raises:
        ValueError: if the tree is deeper than there are heads, a node has more children than the vocabulary has tokens, or the nodes
            do not stand level by level.
    """

    heads: MedusaHeads
    tree: Sequence[int]
    layout: Shape = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.heads, MedusaHeads):
            raise ValueError(f"heads must be MedusaHeads, as MedusaHeads.load returns them, got {self.heads!r:.80}")
        object.__setattr__(self, "layout", Shape(self.tree))
        depth, heads, V = len(self.layout.levels), self.heads.config.heads, self.heads.config.vocab_size
        if depth > heads:
            raise ValueError(f"a tree of depth {depth} needs as many heads, got {heads}")
        if self.width > V:
            raise ValueError(f"a node of the tree has {self.width} children, and the vocabulary has {V} tokens")

    @property
    def max_nodes(self) -> int:
        return len(self.layout)

    @property
    def width(self) -> int:
        """The most children of one node."""
        return max((level.width for level in self.layout.levels), default=0)

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _Proposer:
        """Raises ValueError if the heads were made for another vocabulary or hidden size, or differ in device or dtype."""
        self.heads.check(target)
        return _Proposer(self, target)


class _Proposer:
    def __init__(self, drafter: Medusa, target: Transformer):
        self.drafter, self.target = drafter, target
        self.feature: Tensor | None = None  # (D,), of the token before the root
        levels, width = drafter.layout.levels, drafter.width
        self.places = upload([depth * width + rank for depth, level in enumerate(levels) for rank in level.ranks], target.device).long()
        self.parents = upload(drafter.layout.parents, target.device).long()

    @torch.inference_mode()
    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        shape, width = self.drafter.layout.cut(limit), self.drafter.width
        depth, N = len(shape.levels), len(shape)
        if self.feature is None or not N:
            return TokenTree.empty(self.target.device)
        best = self.drafter.heads(self.target, self.feature, depth).topk(width).indices  # (depth, width)
        tokens = best.flatten()[self.places[:N]]
        return TokenTree.chain(tokens) if shape.is_chain else TokenTree(tokens, self.parents[:N], depth=depth, branching=width)

    def observe(self, outcome: Outcome) -> None:
        self.feature = outcome.hidden[-1]
