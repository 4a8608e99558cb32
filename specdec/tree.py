"""TokenTree: the drafted tokens of one round. A chain is a tree without branches; plain decoding is a tree without nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from specdec.config import check_whole
from specdec.device import on_host, upload

Siblings = Literal["without_replacement", "iid"]


class TokenTree:
    """Drafted tokens and how they hang together. Every tensor may have leading batch axes: one tree for each row.

    Args:
        tokens: (..., N) int64 ids.
        parents: (..., N) or (N,) int64 index of each node's parent, -1 for a child of the root. The root is the last committed
            token and is not a node. A parent comes before its children. Below -1: no node at all, which pads a batch of trees.
        q: (..., N + 1, V) draft distributions, row 0 the one that the root's children were drawn from, row i + 1 that of
            node i's children. None: the children are point masses (top-k candidates, n-grams), not samples. So are the children of
            a row without mass.
        siblings: how the children of one node were drawn from q: "without_replacement" or independently of each other ("iid").
        depth, branching: no path is longer and no node has more children. Counted if parents lie on the CPU; must be given if
            they are computed on an accelerator, which is not asked for them.

    Raises:
        ValueError: if shapes disagree, a number is not whole, or a parent does not come before its child.
    """

    def __init__(
        self,
        tokens: Tensor | Sequence[int],
        parents: Tensor | Sequence[int],
        q: Tensor | None = None,
        siblings: Siblings = "without_replacement",
        depth: int | None = None,
        branching: int | None = None,
    ):
        self.tokens, parents = _whole("tokens", tokens), _whole("parents", parents)
        N = self.tokens.shape[-1] if self.tokens.dim() else -1
        if not parents.dim() or parents.shape[-1] != N:
            raise ValueError(
                f"tokens and parents must both be (..., N), got {tuple(self.tokens.shape)} and {tuple(parents.shape)}"
            )
        if q is not None and not isinstance(q, Tensor):
            raise ValueError(f"q must be a tensor (..., N + 1, V), got {q!r:.80}")
        if q is not None and (q.dim() < 2 or q.shape[-2] != N + 1):
            raise ValueError(f"q must be (..., N + 1, V) with N = {N}, got {tuple(q.shape)}")
        if siblings not in ("without_replacement", "iid"):
            raise ValueError(f"siblings must be 'without_replacement' or 'iid', got {siblings!r}")
        if parents.device.type == "cpu":
            rows = (parents.flatten(0, -2).tolist() if parents.dim() > 1 else [parents.tolist()]) if N else []
            depth, branching = depth or _depth(rows), branching or _branching(rows)
        elif depth is None or branching is None:
            raise ValueError(f"parents on {parents.device} need depth and branching")
        self.q, self.siblings, self.depth, self.branching = q, siblings, depth, branching
        self.parents = upload(parents, self.tokens.device)

    @classmethod
    def chain(cls, tokens: Tensor | Sequence[int], q: Tensor | None = None) -> TokenTree:
        """A tree without branches. tokens (..., K); q (..., K, V), one row per drafted token, or (..., K + 1, V), or None."""
        tokens = _whole("tokens", tokens)
        if not tokens.dim():
            raise ValueError(f"tokens must be (..., K), got shape {tuple(tokens.shape)}")
        K = tokens.shape[-1]
        if isinstance(q, Tensor) and q.dim() >= 2 and q.shape[-2] == K:
            q = torch.cat([q, q.new_zeros(*q.shape[:-2], 1, q.shape[-1])], dim=-2)
        tree = cls(tokens, torch.arange(-1, K - 1, device=tokens.device), q, depth=K, branching=min(K, 1))
        tree.is_chain = True
        return tree

    @classmethod
    @cache
    def empty(cls, device: torch.device | str = "cpu") -> TokenTree:
        """No draft at all: the round is one step of plain decoding."""
        return cls.chain(torch.empty(0, dtype=torch.long, device=device))

    @classmethod
    def stack(cls, trees: Sequence[TokenTree]) -> TokenTree:
        """A batch (B, N) out of B trees without batch axes; the smaller ones are padded with what is no node."""
        kinds = {tree.siblings for tree in trees if len(tree)} or {"without_replacement"}
        if len(kinds) > 1:
            raise ValueError("trees drawn without replacement and trees drawn independently cannot stand in one batch")
        N = max(map(len, trees))
        q = None
        if any(tree.q is not None for tree in trees):
            like = next(tree.q for tree in trees if tree.q is not None)
            q = _stacked([
                like.new_zeros(N + 1, like.shape[-1]) if tree.q is None else _padded(tree.q, N + 1, 0) for tree in trees
            ])  # fmt: skip
        stacked = cls(
            _stacked([_padded(tree.tokens, N, 0) for tree in trees]),
            _stacked([_padded(tree.parents, N, -2) for tree in trees]),
            q, kinds.pop(), max(tree.depth for tree in trees), max(tree.branching for tree in trees),
        )  # fmt: skip
        stacked.is_chain = all(tree.is_chain and len(tree) == N for tree in trees)
        return stacked

    def __len__(self) -> int:
        return self.tokens.shape[-1]

    def __repr__(self) -> str:
        return f"TokenTree(tokens={self.tokens.tolist()}, parents={self.parents.tolist()})"

    @cached_property
    def is_chain(self) -> bool:
        """Whether every node is the child of the one before; False if only the device knows."""
        return self.parents.device.type == "cpu" and bool((self.parents == torch.arange(-1, len(self) - 1)).all())

    @cached_property
    def depths(self) -> Tensor:
        """(..., N) distance from the root: 1 for its children. A node's position is the root's position plus its depth."""
        return self.mask.sum(-1)

    @cached_property
    def mask(self) -> Tensor:
        """(..., N, N) bool: row i may look at column j, true for i itself and its ancestors (2305.09781, section 4.2)."""
        if not on_host(self.parents.device):
            return self._mask_by_gathers()
        rows = self.parents.flatten(0, -2).tolist() if self.parents.dim() > 1 else [self.parents.tolist()]
        return torch.stack([ancestors(row) for row in rows]).view(*self.parents.shape, len(self))

    def _mask_by_gathers(self) -> Tensor:
        itself = torch.eye(len(self), dtype=torch.bool, device=self.parents.device)
        parent, mask = self.parents.clamp_min(0).unsqueeze(-1), itself.expand(*self.parents.shape, -1)
        below = (self.parents >= 0).unsqueeze(-1)
        for _ in range(self.depth - 1):  # a node sees itself and all that its parent sees
            mask = itself | (below & mask.gather(-2, parent.expand(mask.shape)))
        return mask

    # What follows is for people and for tests: it needs the tree on the host.

    def children(self, node: int) -> list[int]:
        """Node ids of the children of `node`, in the order in which they were drafted; -1 asks for the root's."""
        return [child for child, parent in enumerate(self.parents.tolist()) if parent == node]

    @property
    def paths(self) -> list[list[int]]:
        """Every root-to-leaf path, as lists of node ids."""
        parents = self.parents.tolist()
        inner = set(parents)
        return [self.path_to(node) for node in range(len(self)) if node not in inner and parents[node] >= -1]

    def path_to(self, node: int) -> list[int]:
        """Node ids from the root's child down to `node`, inclusive."""
        parents, path = self.parents.tolist(), []
        while node >= 0:
            path.append(node)
            node = parents[node]
        return path[::-1]


def ancestors(parents: Sequence[int]) -> Tensor:
    """`TokenTree.mask` of one tree whose parents are on the host."""
    mask = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:  # a node sees itself and all that its parent sees
            mask[node, :node] = mask[parent, :node]
    return torch.from_numpy(mask)


def full_tree(branching: Sequence[int]) -> list[int]:
    """Parents of the tree in which every node of level i has branching[i] children, level by level.

    full_tree([2, 1]) is [-1, -1, 0, 1]; full_tree([1] * k) is a chain.

    Raises:
        ValueError: if a number is no whole number >= 1.
    """
    for level, n in enumerate(branching):
        check_whole(f"the children of each node in level {level} of a tree", n, 1)
    parents, level = [], [-1]
    for n in branching:
        first = len(parents)
        parents += [node for node in level for _ in range(n)]
        level = list(range(first, len(parents)))
    return parents


def _stacked(rows: list[Tensor]) -> Tensor:
    return torch.stack(rows) if len(rows) > 1 else rows[0].unsqueeze(0)  # a single q is large, and need not be copied


def _whole(name: str, values: Tensor | Sequence[int]) -> Tensor:
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:  # whatever PyTorch finds wrong with it
        raise ValueError(f"{name} must be whole numbers, got {values!r:.80}") from error
    if tensor.dtype == torch.long:
        return tensor
    if (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool) and tensor.numel():
        raise ValueError(f"{name} must be whole numbers, got {tensor.dtype}")
    return tensor.long()


def _padded(x: Tensor, n: int, value: int) -> Tensor:
    """x (m, ...) → (n, ...)."""
    return x if len(x) == n else torch.cat([x, x.new_full((n - len(x), *x.shape[1:]), value)])


def _depth(rows: list[list[int]]) -> int:
    """The longest path; checks that parents come first."""
    longest = 0
    for parents in rows:
        depths: list[int] = []
        for node, parent in enumerate(parents):
            if parent >= node:
                raise ValueError(f"parents[{node}] must be -1 or an earlier node, got {parent}")
            depths.append(depths[parent] + 1 if parent >= 0 else int(parent == -1))
            if parent >= 0 and depths[parent] == 0:
                raise ValueError(f"parents[{node}] is {parent}, which is no node")
        longest = max(longest, *depths, 0)
    return longest


def _branching(rows: list[list[int]]) -> int:
    return max((parents.count(parent) for parents in rows for parent in set(parents) if parent >= -1), default=0)
