"""Merging token trees: nodes with the same path become one. In lists on a CPU; elsewhere nothing is copied to the host."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.device import on_host
from specdec.tree import TokenTree


def match_paths(keys: Tensor, parents: Tensor, depth: int) -> Tensor:
    """The earliest node with the same path, for each node; itself if there is none.

    Level by level: two nodes are the same if their keys are equal and their parents are the same.

    Args:
        keys: (N,) int64, the tokens.
        parents: (N,) int64, of any number of trees at the same root. What is no node (below -1) matches nothing.
        depth: how many levels to match.

    Returns:
        (N,) int64 node ids, match[i] <= i.
    """
    if on_host(keys.device):
        first: dict[tuple[int, int], int] = {}  # (name of the parent, key) → the earliest such node
        match: list[int] = []
        for i, (key, parent) in enumerate(zip(keys.tolist(), parents.tolist(), strict=True)):
            above = match[parent] if parent >= 0 else parent
            match.append(first.setdefault((above, key), i) if parent >= -1 else i)
        return torch.tensor(match, dtype=torch.long)
    node = torch.arange(len(keys), device=keys.device)
    live = parents >= -1
    alike = ((keys[:, None] == keys) & live[:, None] & live) | (node[:, None] == node)
    match = node
    for _ in range(depth if len(keys) else 0):  # after the n-th turn the n uppermost levels are settled
        above = renamed(parents, match)
        match = torch.where(alike & (above[:, None] == above), node, len(keys)).amin(-1)
    return match


def renamed(parents: Tensor, names: Tensor) -> Tensor:
    """Parents (N,) in other names: node i is called names[i] now. The root, and what is no node, keep theirs."""
    return torch.where(parents >= 0, names[parents.clamp_min(0)], parents) if len(names) else parents


def without(gone: Tensor, tokens: Tensor, parents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Leaves out the nodes `gone` (N,) bool, none of them a parent: tokens, parents, and the new name of each old node.

    The size of the result depends on values: only for tensors that `on_host` is true of.
    """
    names = (~gone).cumsum(0) - 1
    return tokens[~gone], renamed(parents, names)[~gone], names


def point_masses(tokens: Tensor, parents: Tensor, depth: int, branching: int) -> TokenTree:
    """A tree whose depth and branching are counted where that is free, and taken from the given bounds elsewhere."""
    if on_host(tokens.device):
        return TokenTree(tokens, parents)
    return TokenTree(tokens, parents, depth=depth, branching=branching)
