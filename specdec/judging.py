"""What becomes of drafted trees: one forward of the target over all of them, the rule, and what the cache keeps.

There are two ways to the same decision. On an accelerator `judge` does everything with tensors of known shapes, and one copy to the
host ends the round. A single text on a CPU may look at every number on its way: it walks down the tree, and makes distributions of
those rows alone that it comes by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.cache import KVCache
from specdec.device import on_host, upload
from specdec.distributions import Sampling, greedy_choice, inverse_cdf
from specdec.models.transformer import Output, Transformer
from specdec.tree import TokenTree, ancestors
from specdec.verification import Verdict, verify_chain, verify_tree, walk, walk_greedily


@dataclass(frozen=True)
class Decision:
    """A row's verdict on the host: accepted node ids and their tokens, the next token, and the tree."""

    path: list[int]
    accepted: list[int]
    next_token: int
    tokens: list[int]
    parents: list[int]

    @property
    def depth(self) -> int:
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else int(parent == -1))
        return max(depths, default=0)

    @property
    def last(self) -> str:
        if -1 not in self.parents:
            return "plain"
        return "recovered" if (self.path[-1] if self.path else -1) in self.parents else "bonus"


def decide(
    target: Transformer,
    cache: KVCache,
    newest: Sequence[int],
    trees: Sequence[TokenTree],
    u: Sequence[Tensor],
    sampling: Sampling,
    layers: Sequence[int] = (),
    width: int | None = None,
) -> tuple[list[Decision], Output]:
    """Judges one tree for each row of the cache, which then holds the root and the accepted path too.

    Args:
        newest: the roots' tokens; row b of the cache holds what comes before.
        trees: without batch axes.
        u: (N + 1,) uniforms for each row, on the CPU, N the nodes of the largest tree.

    Returns:
        The decisions, and the target's output at the root and at every node: logits (B, N + 1, V), hidden (B, N + 1, D).
    """
    if len(trees) == 1 and on_host(target.device):
        decision, output = _decide_on_host(target, cache, newest[0], trees[0], u[0], sampling, layers, width)
        return [decision], output
    tree = TokenTree.stack(trees)  # (B, N)
    roots, starts = upload([[token] for token in newest], target.device), cache.lengths
    verdict, output = judge(target, cache, roots, tree, upload(torch.stack(list(u)), target.device), sampling, layers, width)
    decisions = _to_host(verdict, tree)
    cache.rollback([start + 1 + len(decision.path) for start, decision in zip(starts, decisions, strict=True)])
    return decisions, output


def _decide_on_host(
    target: Transformer,
    cache: KVCache,
    newest: int,
    tree: TokenTree,
    u: Tensor,
    sampling: Sampling,
    layers: Sequence[int],
    width: int | None,
) -> tuple[Decision, Output]:
    root, tokens, parents = cache.length, tree.tokens.tolist(), tree.parents.tolist()
    layout = {}
    if not tree.is_chain:
        mask = ancestors([-1, *(parent + 1 for parent in parents)])  # the root as a node
        layout = {"positions": root + mask.sum(-1) - 1, "mask": mask}
    output = _forward(target, cache, torch.tensor([[newest, *tokens]]), layout, layers, width)
    logits = output.logits[0]
    if sampling.greedy:
        path, next_token = walk_greedily(lambda row: greedy_choice(logits[row]), tree)
    else:
        path, left = walk(lambda row: sampling.probabilities(logits[row]), tree, u[:-1].tolist())
        next_token = int(inverse_cdf(left, u[-1]))
    cache.keep([root, *(root + 1 + node for node in path)])
    return Decision(path, [tokens[node] for node in path], next_token, tokens, parents), output


def judge(
    target: Transformer,
    cache: KVCache,
    newest: Tensor,
    tree: TokenTree,
    u: Tensor,
    sampling: Sampling,
    layers: Sequence[int] = (),
    width: int | None = None,
) -> tuple[Verdict, Output]:
    """The part of a round that runs on the device: one forward, the rule, and the accepted path moved behind its root.

    Nothing is copied to the host, and with a width every shape is fixed, so that it can be captured in a CUDA graph. The cache is
    left as long as the forward made it: how much of it stays is for the host to say.

    Args:
        newest: (B, 1) the roots' tokens; row b of the cache holds what comes before.
        tree: (B, N).
        u: (B, N + 1) uniforms.

    Returns:
        The verdict on each row, and the target's output at the root and at every node: logits (B, N + 1, V), hidden (B, N + 1, D).
    """
    roots = cache.starts.unsqueeze(-1).clone()  # (B, 1), their slots; node i lies i + 1 slots behind
    layout = {} if tree.is_chain else _layout(roots, tree)
    output = _forward(target, cache, torch.cat([newest, tree.tokens], dim=-1), layout, layers, width)
    p = sampling.probabilities(output.logits)
    if tree.is_chain:
        return verify_chain(p, None if tree.q is None else tree.q[:, : len(tree)], tree.tokens, u), output
    verdict = verify_tree(p, tree, u)
    cache.move(roots + 1 + verdict.path, roots + 1)  # behind the path's end it copies the root to where nobody looks
    return verdict, output


def _forward(
    target: Transformer, cache: KVCache, tokens: Tensor, layout: dict[str, Tensor], layers: Sequence[int], width: int | None
) -> Output:
    """tokens: (B, N + 1), the root and its tree."""
    n = tokens.shape[1]
    if width is None:
        return target(tokens, cache, rows=n, layers=layers, **layout)
    more = width - n
    if layout:
        itself = torch.eye(width, dtype=torch.bool, device=target.device)
        layout = {
            "positions": F.pad(layout["positions"], (0, more)),
            "mask": F.pad(layout["mask"], (0, more, 0, more)) | itself,
        }
    output = target(F.pad(tokens, (0, more)), cache, layers=layers, fixed=True, **layout)
    inner = None if output.layers is None else output.layers[:, :n]
    return Output(output.logits[:, :n], output.hidden[:, :n], inner)


def _layout(roots: Tensor, tree: TokenTree) -> dict[str, Tensor]:
    """Positions and mask of the roots (B, 1) with their trees (B, N). A chain needs neither."""
    n = len(tree) + 1
    mask = torch.ones(*tree.mask.shape[:-2], n, n, dtype=torch.bool, device=tree.mask.device)  # everybody sees the root
    mask[..., 0, 1:] = False
    mask[..., 1:, 1:] = tree.mask
    positions = roots + mask.sum(-1) - 1
    return {"positions": positions[0], "mask": mask[0]} if len(mask) == 1 else {"positions": positions, "mask": mask}


def _to_host(verdict: Verdict, tree: TokenTree) -> list[Decision]:
    """The verdict of each row and the tree that it speaks of. The one synchronisation with the device in a round."""
    B, N = tree.tokens.shape
    path = torch.arange(N, device=tree.tokens.device).expand(B, N) if verdict.path is None else verdict.path
    columns = [verdict.count.unsqueeze(-1), verdict.next_token.unsqueeze(-1), path, tree.tokens, tree.parents.expand(B, N)]
    decisions = []
    for count, next_token, *ids in torch.cat(columns, dim=-1).tolist():
        nodes, tokens, parents = ids[:count], ids[-2 * N : len(ids) - N], ids[len(ids) - N :]
        decisions.append(Decision(nodes, [tokens[node] for node in nodes], next_token, tokens, parents))
    return decisions
