"""Eagle: trees out of a head that continues the target's features (EAGLE-1, -2 and -3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec.config import check_size
from specdec.device import on_host, upload
from specdec.distributions import Sampling
from specdec.drafters.base import Outcome
from specdec.drafters.eagle_head import EagleHead
from specdec.drafters.growing import Level, Shape, draft_uniforms, grow
from specdec.models.attention import view
from specdec.models.transformer import Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms


@dataclass(frozen=True)
class Eagle:
    """A dynamic tree (EAGLE-2, Li et al. 2406.16858, section 4), or one of given shape (EAGLE-1, 2401.15077, section 3.1).

    The dynamic tree follows the head's confidence in a node: the product of its probabilities at temperature 1 along the path. Of
    each level the top_k most confident nodes are expanded, each to its top_k most probable children; of all that were drafted the
    `budget` most confident nodes are kept. They are point masses at every temperature, and so the text is exactly the target's.
    With top_k = 1 the tree is a chain.

    Of a given shape, children are drawn from the head's q without replacement, and at temperature 0 they are its most probable
    tokens as point masses.

    Args:
        head: of version 1 or 3.
        depth: levels, >= 1.
        top_k: >= 1, at most the number of tokens that the head scores.
        budget: nodes that are kept, >= 1.
        tree: parents of a tree's nodes, level by level (`full_tree([3, 2, 1])`), in place of those three.

    Raises:
        ValueError: if a number is out of its range, or not exactly one of the two kinds of tree is asked for.
    """

    head: EagleHead
    depth: int | None = None
    top_k: int | None = None
    budget: int | None = None
    tree: Sequence[int] | None = None
    shape: Shape | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.head, EagleHead):
            raise ValueError(f"head must be an EagleHead, as EagleHead.load returns it, got {self.head!r:.80}")
        numbers = {"depth": self.depth, "top_k": self.top_k, "budget": self.budget}
        wrong = [name for name, value in numbers.items() if (value is None) == (self.tree is None)]
        if wrong:
            raise ValueError(f"give either depth, top_k and budget, or tree; got {numbers} and tree = {self.tree}")
        for name, value in numbers.items():
            if value is not None:
                check_size(name, value)
        object.__setattr__(self, "shape", None if self.tree is None else Shape(self.tree))
        widest = self.top_k or max((level.width for level in self.shape.levels), default=0)
        if widest > self.head.config.scored:
            raise ValueError(f"a node gets {widest} children, and the head scores {self.head.config.scored} tokens")

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's layers that the head reads."""
        return self.head.config.layers

    @property
    def max_nodes(self) -> int:
        if self.shape is not None:
            return len(self.shape)
        return min(self.budget, self.top_k + self.expanded * self.top_k)

    @property
    def levels(self) -> int:
        """A kept node has all its ancestors: no path is longer than the budget."""
        return min(self.depth, self.budget)

    @property
    def expanded(self) -> int:
        """The most drafted nodes that run through the head in a round; leaves do not."""
        if self.shape is not None:
            return self.shape.levels[-1].start if self.shape.levels else 0
        return (self.levels - 1) * self.top_k

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _Proposer:
        """Raises ValueError if the head does not fit the target (vocabulary, hidden size, layers, dtype, device) or the context is
        shorter than max_length."""
        self.head.check(target)
        context = min(self.head.config.target.max_length, target.config.max_length)
        if max_length > context:
            raise ValueError(f"the request may reach {max_length} tokens and the head's context ends at {context}")
        if self.shape is not None:
            return _Static(self, target, sampling, max_length)
        kind = _DynamicOnHost if on_host(target.device) else _Dynamic
        return kind(self, target, sampling, max_length)


class _Proposer(ABC):
    """The head's cache holds the pairs of committed tokens, pair t in slot t. Drafted nodes lie behind them only while a tree grows:
    once accepted they run again, with the target's features in place of the head's guesses.

    A root that is token n - 1 has pair n - 2 behind it, and so a node of depth d has the position n - 2 + d.
    """

    def __init__(self, drafter: Eagle, target: Transformer, sampling: Sampling, max_length: int):
        self.drafter, self.head, self.target, self.sampling = drafter, drafter.head, target, sampling
        self.cache = self.head.new_cache(max_length + drafter.expanded)
        self.pending: list[Tensor] = []  # what the head reads, of positions whose pairs the cache lacks
        self.root: Tensor | None = None  # (1, D), the head's own feature behind the newest pair

    @torch.inference_mode()
    def observe(self, outcome: Outcome) -> None:
        self.pending.append(self.head.features(outcome.hidden, outcome.layers))

    @torch.inference_mode()
    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        self._catch_up(committed)
        if self.root is None:  # a prompt of one token: nothing stands before the root
            return TokenTree.empty(self.target.device)
        pairs = self.cache.length
        tree = self._draft(len(committed), limit, uniforms)
        self.cache.rollback(pairs)
        return tree

    def _catch_up(self, committed: list[int]) -> None:
        """Runs the pairs of the tokens that were committed since the last tree."""
        if not self.pending:
            return
        features, start = torch.cat(self.pending) if len(self.pending) > 1 else self.pending[0], self.cache.length
        self.pending = []
        tokens = upload(committed[start + 1 :], self.target.device)
        self.root = self._run(tokens, features, None, slice(start, start + len(features)))[-1:]

    def _run(self, tokens: Tensor, features: Tensor, mask: Tensor | None, positions: slice) -> Tensor:
        """tokens (T,), features (T, D), mask (T, M) or None → the head's own features (T, D)."""
        seen = view(self.cache, len(features), mask, fixed=False)
        return self.head(self.target, tokens[None], features[None], seen, positions)[0]

    @abstractmethod
    def _draft(self, n: int, limit: int, uniforms: Uniforms) -> TokenTree:
        """The tree behind n committed tokens."""


def _at(position: int) -> slice:
    """One position, for every node of a level."""
    return slice(position, position + 1)


class _Static(_Proposer):
    def _draft(self, n: int, limit: int, uniforms: Uniforms) -> TokenTree:
        shape = self.drafter.shape.cut(limit)
        if not len(shape):
            return TokenTree.empty(self.target.device)
        u = draft_uniforms(uniforms, n, len(shape), self.sampling, self.target.device)
        self.above = self.root  # (nodes, D): the head's features behind the level that is being expanded

        def advance(tokens: Tensor, level: Level) -> Tensor:
            features, mask = self.above[upload(level.parents, self.target.device)], upload(level.mask, self.target.device)
            self.above = self._run(tokens, features, mask, _at(n - 2 + level.depth))
            return self._logits(self.above)

        return grow(shape, self._logits(self.root), advance, self.sampling, u)

    def _logits(self, features: Tensor) -> Tensor:
        """(nodes, V)"""
        return self.head.spread(self.head.logits(self.target, features))


class _Dynamic(_Proposer):
    def _draft(self, n: int, limit: int, uniforms: Uniforms) -> TokenTree:
        """Level by level; every shape is known beforehand, and nothing comes to the host."""
        K, levels = self.drafter.top_k, min(self.drafter.levels, limit)
        features = self.root  # (nodes, D), nodes = those that are expanded: the root, then K of each level
        node = torch.full((1,), -1, device=features.device)  # their numbers among all drafted nodes
        seen = torch.ones(1, 0, dtype=torch.bool, device=features.device)  # (nodes, expanded so far): ancestors and themselves
        confidence, tokens, parents, confidences = 0.0, [], [], []
        for level in range(levels):
            chance, children = self._children(features)  # (nodes, K) each
            tokens.append(children.flatten())
            parents.append(node.repeat_interleave(K))
            confidences.append((confidence + chance).flatten())
            if level + 1 == levels:
                break
            chosen = _most_confident(confidences[-1], K)  # (K,) of this level's nodes
            above = chosen // K
            itself = torch.eye(K, dtype=torch.bool, device=features.device)
            seen = torch.cat([seen[above], itself], dim=-1)
            features = self._run(tokens[-1][chosen], features[above], seen, _at(n - 1 + level))
            node = chosen + sum(map(len, tokens[:-1]))
            confidence = confidences[-1][chosen, None]
        return self._keep(torch.cat(tokens), torch.cat(parents), torch.cat(confidences), levels)

    def _children(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The top_k most probable children of each node: log-probabilities at temperature 1, and the target's ids."""
        logits = self.head.logits(self.target, features)
        chance, best = logits.log_softmax(-1, torch.promote_types(logits.dtype, torch.float32)).topk(self.drafter.top_k)
        return chance, self.head.target_ids(best)

    def _keep(self, tokens: Tensor, parents: Tensor, confidence: Tensor, depth: int) -> TokenTree:
        """The tree of the most confident nodes. With a node its ancestors stay: a parent is at least as confident and comes first."""
        kept = _most_confident(confidence, self.drafter.budget).sort().values
        tokens, parents = tokens[kept], parents[kept]
        if self.drafter.top_k == 1:
            return TokenTree.chain(tokens)
        parents = torch.where(parents < 0, -1, torch.searchsorted(kept, parents))
        return TokenTree(tokens, parents, depth=depth, branching=self.drafter.top_k)


class _DynamicOnHost(_Dynamic):
    """The same tree where every number may be looked at: node by node, in lists."""

    def _draft(self, n: int, limit: int, uniforms: Uniforms) -> TokenTree:
        K, levels = self.drafter.top_k, min(self.drafter.levels, limit)
        features, expanded, seen = self.root, [-1], [[]]  # (nodes, D), the nodes, and whom of all that were expanded each sees
        tokens, parents, confidence = [], [], []
        for level in range(levels):
            first = len(tokens)
            for node, chances, ids in zip(expanded, *(x.tolist() for x in self._children(features)), strict=True):
                tokens += ids
                parents += [node] * K
                confidence += [chance + (confidence[node] if level else 0.0) for chance in chances]
            if level + 1 == levels:
                break
            chosen = sorted(range(first, len(tokens)), key=lambda node: -confidence[node])[:K]
            above = [expanded.index(parents[node]) for node in chosen]
            seen = [seen[parent] + [i == j for j in range(K)] for i, parent in enumerate(above)]
            features = features.index_select(0, torch.tensor(above))
            features = self._run(
                torch.tensor([tokens[node] for node in chosen]), features, torch.tensor(seen), _at(n - 1 + level)
            )
            expanded = chosen
        return self._keep(tokens, parents, confidence, levels)

    def _keep(self, tokens: list[int], parents: list[int], confidence: list[float], depth: int) -> TokenTree:
        kept = sorted(sorted(range(len(tokens)), key=lambda node: -confidence[node])[: self.drafter.budget])
        names = {node: name for name, node in enumerate(kept)}
        chosen = torch.tensor([tokens[node] for node in kept])
        if self.drafter.top_k == 1:
            return TokenTree.chain(chosen)
        return TokenTree(chosen, [names.get(parents[node], -1) for node in kept])


def _most_confident(confidence: Tensor, n: int) -> Tensor:
    """The n most confident nodes, most confident first; on ties the earlier one, which topk does not promise."""
    return confidence.sort(descending=True, stable=True).indices[:n]
