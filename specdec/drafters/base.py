"""The protocol of every drafter: look at the committed tokens, propose a TokenTree."""

from __future__ import annotations

from typing import Protocol

from specdec.distributions import Sampling
from specdec.models.transformer import Output, Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms


class Proposer(Protocol):
    """A drafter at work on one request; it holds whatever state that request needs."""

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        """What might follow.

        Args:
            committed: every token of the text so far, prompt included; the last one is the root of the tree.
            limit: the deepest path that the budget still has room for, >= 1. A tree without nodes is a right answer: the round
                is then one step of plain decoding.
            uniforms: the drafter draws with Purpose.DRAFT at position len(committed).

        Returns:
            The tree. Its q must be the very distributions that the tokens were drawn from, siblings without replacement, or None
            if they were not drawn. Its shape must not depend on drawn values.
        """
        ...

    def observe(self, accepted: list[int], output: Output) -> None:
        """What became of the tree: the node ids of the accepted path, and the target's output on the root and that path.

        Output's tensors have 1 + len(accepted) rows, for drafters that read the target's features.
        """
        ...


class Drafter(Protocol):
    """A way to draft, configured once and used for any number of requests."""

    @property
    def max_nodes(self) -> int:
        """The most nodes that a tree of this drafter has: the target's cache is made that much longer."""
        ...

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> Proposer:
        """Begins a request.

        Args:
            sampling: what the target's logits go through. A drafter that samples puts its own logits through the same.
            max_length: the most committed tokens that the request can reach.

        Raises:
            ValueError: if the drafter cannot work for this target.
        """
        ...
