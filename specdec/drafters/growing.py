"""Growing a tree of known shape out of a model's distributions, level by level: what draft models and EAGLE-1 have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index

import torch
from torch import Tensor

from specdec.device import upload
from specdec.distributions import Sampling, argmax, inverse_cdf
from specdec.tree import Siblings, TokenTree
from specdec.uniforms import Purpose, Uniforms


@dataclass(frozen=True)
class Level:
    """The nodes start … end - 1 of one depth. Node start + i is child number ranks[i] of the node parents[i] of the level above.

    mask: (end - start, end) bool: whom of the nodes down to this level they may see.
    """

    depth: int
    start: int
    end: int
    parents: list[int]
    ranks: list[int]
    mask: Tensor

    @property
    def width(self) -> int:
        """The most children of one node."""
        return max(self.ranks) + 1

    @property
    def places(self) -> list[int]:
        """Where the nodes stand among `width` children of every node above."""
        return [parent * self.width + rank for parent, rank in zip(self.parents, self.ranks, strict=True)]


class Shape:
    """A tree's shape, fixed before anything is drafted.

    Args:
        parents: of each node, -1 for the root's children; level by level (`full_tree` makes such lists).

    Raises:
        ValueError: if a level begins before the one above it is complete, or a parent does not come before its child or is below -1.
    """

    def __init__(self, parents: Sequence[int]):
        try:
            self.parents = [index(parent) for parent in parents]
        except TypeError as error:
            raise ValueError(f"a tree's shape must be a list of parents, whole numbers, got {parents!r:.80}") from error
        if min(self.parents, default=-1) < -1:
            raise ValueError(f"the parents of a tree's shape must be >= -1, got {self.parents}")
        tree = TokenTree([0] * len(self.parents), self.parents)
        depths = tree.depths.tolist()
        if depths != sorted(depths):
            raise ValueError(f"the nodes of a tree's shape must stand level by level, got parents {self.parents}")
        self.levels: list[Level] = []
        above = 0  # first node of the level above
        for depth in range(1, max(depths, default=0) + 1):
            start, end = depths.index(depth), len(depths) - depths[::-1].index(depth)
            own = self.parents[start:end]
            ranks = [own[:i].count(parent) for i, parent in enumerate(own)]
            seen = tree.mask[start:end, :end]
            self.levels.append(Level(depth, start, end, [parent - above if depth > 1 else 0 for parent in own], ranks, seen))
            above = start

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def is_chain(self) -> bool:
        return all(level.end - level.start == 1 for level in self.levels)

    def cut(self, depth: int) -> Shape:
        """The levels down to `depth`."""
        return self if depth >= len(self.levels) else Shape(self.parents[: self.levels[depth].start])


def draft_uniforms(uniforms: Uniforms, position: int, nodes: int, sampling: Sampling, device: torch.device) -> Tensor | None:
    """What `grow` draws from; at temperature 0 it draws nothing."""
    return None if sampling.greedy else upload(uniforms.draw(Purpose.DRAFT, position, nodes), device)


def grow(
    shape: Shape,
    logits: Tensor,
    advance: Callable[[Tensor, Level], Tensor],
    sampling: Sampling,
    u: Tensor | None,
    siblings: Siblings = "without_replacement",
) -> TokenTree:
    """Fills a shape with tokens.

    Above temperature 0 the children of a node are drawn from the draft's distribution behind it, and the tree declares that
    distribution. At temperature 0 nothing is drawn: the children are the most probable tokens, as point masses.

    Args:
        logits: (1, V) at the root.
        advance: (tokens of a level (n,), the level) → logits (n, V) behind each of them. Not asked about the last level.
        u: (N,) uniforms, one for each node; None at temperature 0.
    """
    tokens, rows = [], []
    for number, level in enumerate(shape.levels):
        chosen = _choose(logits, level, sampling, u, siblings, rows)  # (nodes above, level.width)
        everyone = level.places == list(range(chosen.numel()))
        tokens.append(chosen.flatten() if everyone else chosen.flatten()[upload(level.places, chosen.device)])
        if number + 1 < len(shape.levels):
            logits = advance(tokens[-1], level)
    q = None
    if rows:
        q = torch.cat([*rows, rows[0].new_zeros(len(shape) + 1 - sum(map(len, rows)), rows[0].shape[-1])])
    if shape.is_chain:
        return TokenTree.chain(torch.cat(tokens), q)
    return TokenTree(torch.cat(tokens), shape.parents, q, siblings)


def _choose(
    logits: Tensor, level: Level, sampling: Sampling, u: Tensor | None, siblings: Siblings, rows: list[Tensor]
) -> Tensor:
    """Children (R, level.width) for each row of logits (R, V); what they were drawn from is appended to `rows`."""
    if sampling.greedy:
        return argmax(logits) if level.width == 1 else logits.topk(level.width).indices
    q = sampling.probabilities(logits)
    rows.append(q)
    coins = u.new_zeros(len(logits) * level.width)
    coins = coins.scatter(0, upload(level.places, u.device), u[level.start : level.end]).view(len(logits), level.width)
    drawn = []
    for rank in range(level.width):
        x = inverse_cdf(q, coins[:, rank]).clamp_max(q.shape[-1] - 1)  # from NaN comes no token; such a q rejects any
        drawn.append(x)
        if siblings == "without_replacement" and rank + 1 < level.width:
            q = q.scatter(-1, x.unsqueeze(-1), 0.0)
    return torch.stack(drawn, -1)
