"""TokenTree: the drafted tokens of one round. A chain is a tree without branches; plain decoding is a tree without nodes."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor


class TokenTree:
    """Drafted tokens and how they hang together.

    Args:
        tokens: (N,) int64 ids.
        parents: (N,) int64 index of each node's parent, -1 for a child of the root. The root is the last committed token and
            is not a node. A parent comes before its children.
        q: (N + 1, V) draft distributions, row 0 the one that the root's children were drawn from, row i + 1 that of
            node i's children. None: the children are point masses (top-k candidates, n-grams), not samples.

    Raises:
        ValueError: if shapes disagree or a parent does not come before its child.
    """

    def __init__(self, tokens: Tensor, parents: Tensor, q: Tensor | None = None):
        tokens, parents = torch.as_tensor(tokens), torch.as_tensor(parents, device="cpu")
        if tokens.dim() != 1 or tokens.shape != parents.shape:
            raise ValueError(f"tokens and parents must both be (N,), got {tuple(tokens.shape)} and {tuple(parents.shape)}")
        if q is not None and (q.dim() != 2 or len(q) != len(tokens) + 1):
            raise ValueError(f"q must be (N + 1, V) with N = {len(tokens)}, got {tuple(q.shape)}")
        self.tokens = tokens.long()
        self.q = q
        # The shape of a tree must not depend on sampled values, so it is known to the host without asking the device.
        self.parents = parents.long()
        self._parents: list[int] = self.parents.tolist()
        for node, parent in enumerate(self._parents):
            if not -1 <= parent < node:
                raise ValueError(f"parents[{node}] must be -1 or an earlier node, got {parent}")

    @classmethod
    def chain(cls, tokens: Tensor, q: Tensor | None = None) -> TokenTree:
        """A tree without branches. tokens (K,); q (K, V), one row per drafted token, or (K + 1, V), or None."""
        tokens = torch.as_tensor(tokens)
        if q is not None and len(q) == len(tokens):
            q = torch.cat([q, torch.zeros_like(q[:1]) if len(q) else q.new_zeros(1, q.shape[-1])])
        return cls(tokens, torch.arange(-1, len(tokens) - 1), q)

    @classmethod
    def empty(cls, device: torch.device | str = "cpu") -> TokenTree:
        """No draft at all: the round is one step of plain decoding."""
        return cls(torch.empty(0, dtype=torch.long, device=device), torch.empty(0, dtype=torch.long))

    def __len__(self) -> int:
        return len(self._parents)

    def __repr__(self) -> str:
        return f"TokenTree(tokens={self.tokens.tolist()}, parents={self._parents})"

    @cached_property
    def is_chain(self) -> bool:
        return self._parents == list(range(-1, len(self) - 1))

    @cached_property
    def depths(self) -> Tensor:
        """(N,) distance from the root: 1 for its children. A node's position is the root's position plus its depth."""
        depths: list[int] = []
        for parent in self._parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return torch.tensor(depths, dtype=torch.long)

    @cached_property
    def mask(self) -> Tensor:
        """(N, N) bool: row i may look at column j, true for i itself and its ancestors (2305.09781, section 4.2)."""
        mask = torch.eye(len(self), dtype=torch.bool)
        for node, parent in enumerate(self._parents):
            if parent >= 0:
                mask[node] |= mask[parent]
        return mask

    def children(self, node: int) -> list[int]:
        """Node ids of the children of `node`, in the order in which they were drafted; -1 asks for the root's."""
        return [child for child, parent in enumerate(self._parents) if parent == node]

    @cached_property
    def paths(self) -> list[list[int]]:
        """Every root-to-leaf path, as lists of node ids."""
        inner = set(self._parents)
        leaves = [node for node in range(len(self)) if node not in inner]
        return [self.path_to(leaf) for leaf in leaves]

    def path_to(self, node: int) -> list[int]:
        """Node ids from the root's child down to `node`, inclusive."""
        path = []
        while node >= 0:
            path.append(node)
            node = self._parents[node]
        return path[::-1]
