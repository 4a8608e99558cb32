"""Combine: two drafters propose one tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.device import on_host
from specdec.distributions import Sampling
from specdec.drafters.base import Drafter, Outcome, Proposer
from specdec.drafters.checking import begin, check_drafter, check_proposal
from specdec.drafters.merging import match_paths, renamed
from specdec.models.transformer import Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Purpose, Uniforms


@dataclass(frozen=True)
class Combine:
    """The trees of two drafters at the same root, merged: a path that both propose stands in the tree once.

    Every node is a point mass, also where a drafter drew its tokens: the tree declares no q. The text has the target's
    distribution all the same. The tokens were drawn from numbers of their own (Purpose.DRAFT), which the coins do not depend on.
    So whatever tree came of it, given that tree the coins are uniform, and the rule for point masses emits the target's
    distribution for any tree that was fixed before them; the average over the drawn trees is then that distribution too. What is
    lost is acceptance: above temperature 0 a drawn token x is accepted with p(x), not with min(1, p(x) / q(x)). At temperature 0
    nothing is lost: the accepted path is at least as long as that of either drafter alone.

    Args:
        first: its children are tried before those that only the second has.
        second: another drafter; a Combine too.

    Raises:
        ValueError: if one of the two is no drafter.

    Each drafter observes the outcome in terms of its own tree: its nodes on the accepted path, and its rows of the logits. The
    features (`hidden`, `layers`) are those of the whole accepted path, which may go on where the drafter's own tree ended.
    """

    first: Drafter
    second: Drafter

    def __post_init__(self) -> None:
        for drafter in (self.first, self.second):
            check_drafter(drafter)

    @property
    def max_nodes(self) -> int:
        return self.first.max_nodes + self.second.max_nodes

    @property
    def layers(self) -> tuple[int, ...]:
        """The inner layers of the target that either drafter reads."""
        return tuple(dict.fromkeys([*_layers(self.first), *_layers(self.second)]))

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _Proposer:
        """Raises ValueError if one of the two cannot work for this target."""
        return _Proposer(self, [begin(drafter, target, sampling, max_length) for drafter in (self.first, self.second)], target)


class _Proposer:
    def __init__(self, drafter: Combine, proposers: Sequence[Proposer], target: Transformer):
        self.drafter, (self.first, self.second), self.target = drafter, proposers, target
        self.joint = join(TokenTree.empty(), TokenTree.empty())

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        first = self.first.propose(committed, limit, uniforms)
        second = self.second.propose(committed, limit, _Beyond(uniforms, self.drafter.first.max_nodes))
        for tree, drafter in ((first, self.drafter.first), (second, self.drafter.second)):
            check_proposal(tree, limit, drafter.max_nodes, self.target.config.vocab_size, self.target.device)
        self.joint = join(first, second)
        return self.joint.tree

    def observe(self, outcome: Outcome) -> None:
        layers = [_columns(outcome.layers, self.drafter.layers, _layers(d)) for d in (self.drafter.first, self.drafter.second)]
        if not len(outcome.tree):  # the prompt, or a round without room for a draft
            outcomes = [Outcome([], outcome.tree, outcome.logits, outcome.hidden, own) for own in layers]
        else:
            paths, trees = self.joint.split(outcome)
            logits = outcome.logits[: self.joint.border + 1], outcome.logits[self.joint.rows]
            outcomes = [Outcome(*own[:3], outcome.hidden, own[3]) for own in zip(paths, trees, logits, layers, strict=True)]
        self.first.observe(outcomes[0])
        self.second.observe(outcomes[1])


@dataclass(frozen=True)
class Joint:
    """Two trees in one.

    tree: what is proposed: the first tree's nodes as they are, then the second's.
    border: how many nodes the first has.
    rows: (N₂ + 1,) the row of the logits that belongs to the second's root and to each of its nodes.
    tokens, parents: all nodes, matched ones included. They hold both trees: a node of the second that is also one of the first has
        the parent -2 - (that node's id), and what was no node before has its parent lowered by `border`.
    kept: the place of the proposed nodes among them; None if all are proposed.
    """

    tree: TokenTree
    border: int
    rows: Tensor
    tokens: Tensor
    parents: Tensor
    kept: Tensor | None

    def split(self, outcome: Outcome) -> tuple[list[list[int]], list[TokenTree]]:
        """Accepted nodes and tree of each of the two, all on the host."""
        if self.kept is None:
            tokens, parents, path = outcome.tree.tokens.tolist(), outcome.tree.parents.tolist(), outcome.accepted
        else:
            tokens, parents = self.tokens.tolist(), self.parents.tolist()
            path = self.kept[outcome.accepted].tolist()
        n = self.border
        own = {node: node - n for node in range(n, len(tokens)) if parents[node] >= -1}  # node → its name in the second tree
        own |= {-2 - parent: node for node, parent in enumerate(parents[n:]) if -2 - n < parent < -1}
        theirs = []
        for parent in parents[n:]:
            above = parents[-2 - parent] if -2 - n < parent < -1 else parent
            theirs.append(above + n if above < -1 else own.get(above, -1))
        paths = [list(takewhile(lambda node: node < n, path)), [own[node] for node in takewhile(own.__contains__, path)]]
        return paths, [TokenTree(tokens[:n], parents[:n]), TokenTree(tokens[n:], theirs)]


def join(first: TokenTree, second: TokenTree) -> Joint:
    """Merges the second tree into the first; both without batch axes, on one device. Nothing is copied to the host."""
    n = len(first)
    if on_host(first.tokens.device):
        return _join_lists(first, second)
    tokens = torch.cat([first.tokens, second.tokens])
    lowered = torch.where(second.parents < -1, second.parents - n, second.parents)
    parents = torch.cat([first.parents, torch.where(lowered >= 0, lowered + n, lowered)])
    match = match_paths(torch.cat([_keys(first), _keys(second)]), parents, min(first.depth, second.depth))
    matched = match != torch.arange(len(tokens), device=tokens.device)
    parents = torch.where(matched, -2 - match, renamed(parents, match))
    tree = TokenTree(tokens, parents, depth=max(first.depth, second.depth), branching=first.branching + second.branching)
    return Joint(tree, n, F.pad(match[n:] + 1, (1, 0)), tokens, parents, None)


def _join_lists(first: TokenTree, second: TokenTree) -> Joint:
    """The same where tokens may be read. What matches is left out of the tree: it would cost the target time."""
    n, tokens = len(first), first.tokens.tolist() + second.tokens.tolist()
    lowered = [parent + n if parent >= 0 else parent - n if parent < -1 else -1 for parent in second.parents.tolist()]
    earliest: dict[
        tuple, int
    ] = {}  # a node by its parent, its token, and how many siblings before it in its tree have that token
    match, parents, twins = [], [], Counter()
    for node, (token, parent) in enumerate(zip(tokens, first.parents.tolist() + lowered, strict=True)):
        above, sibling = match[parent] if parent >= 0 else parent, (node < n, parent, token)
        match.append(earliest.setdefault((above, token, twins[sibling]), node) if parent >= -1 else node)
        parents.append(above if match[node] == node else -2 - match[node])
        twins[sibling] += 1
    kept = [node for node, earlier in enumerate(match) if node == earlier]
    place = {node: i for i, node in enumerate(kept)}
    chosen = torch.tensor([tokens[node] for node in kept], dtype=torch.long)
    tree = TokenTree(chosen, [place.get(parents[node], parents[node]) for node in kept])
    rows = torch.tensor([0, *(place[earlier] + 1 for earlier in match[n:])])
    return Joint(tree, n, rows, *(torch.tensor(ids, dtype=torch.long) for ids in (tokens, parents, kept)))


def _keys(tree: TokenTree) -> Tensor:
    """(N,) what a node is told by among its siblings: its token, and how many siblings before it have the same one.

    Independent draws repeat tokens. With such keys a node matches at most one of the other tree, and none of its own.
    """
    node = torch.arange(len(tree), device=tree.tokens.device)
    twin = (tree.parents[:, None] == tree.parents) & (tree.tokens[:, None] == tree.tokens) & (node[:, None] > node)
    return tree.tokens + (twin.sum(-1) << 32)


class _Beyond:
    """Uniforms for the second drafter: those behind the ones that the first may have used, so that the two draw independently."""

    def __init__(self, uniforms: Uniforms, used: int):
        self.uniforms, self.used = uniforms, used

    def draw(self, purpose: Purpose, position: int, n: int) -> Tensor:
        return self.uniforms.draw(purpose, position, self.used + n)[self.used :]


def _layers(drafter: Drafter) -> Sequence[int]:
    return getattr(drafter, "layers", ())


def _columns(outputs: Tensor | None, asked: Sequence[int], own: Sequence[int]) -> Tensor | None:
    """Out of the outputs (T, n D) of the layers `asked` those of the layers `own`, in their order; None if there are none."""
    if outputs is None or not own:
        return None
    each = outputs.chunk(len(asked), dim=-1)
    return torch.cat([each[asked.index(layer)] for layer in own], dim=-1)
