"""The protocol of every drafter: look at the committed tokens, propose a TokenTree, look at what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specdec.distributions import Sampling
from specdec.models.transformer import Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms


@dataclass(frozen=True)
class Outcome:
    """What became of a proposed tree, and what the target computed on the way.

    accepted: node ids of the accepted path, from the root's child down.
    tree: the proposal, its tokens and parents on the host.
    logits: (N + 1, V) the target's, row 0 at the root, row i + 1 behind node i; (0, V) after the prompt.
    hidden: (T, D) the target's features (`Output.hidden`) of the T tokens that were added to its cache and stay: the prompt but for
        its last token, or the root and the accepted path.
    layers: (T, n D) the outputs of the inner layers that the drafter asked for; None if it asked for none.
    """

    accepted: list[int]
    tree: TokenTree
    logits: Tensor
    hidden: Tensor
    layers: Tensor | None = None


class Proposer(Protocol):
    """A drafter at work on one request; it holds whatever state that request needs."""

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        """What might follow.

        Args:
            committed: every token of the text so far, prompt included; the last one is the root of the tree. It must stay as it is.
            limit: the deepest path that the budget still has room for, >= 1. A tree without nodes is a right answer: the round
                is then one step of plain decoding.
            uniforms: the drafter draws with Purpose.DRAFT at position len(committed).

        Returns:
            The tree, without batch axes. Its q must be the very distributions that the tokens were drawn from, or None if they
            were not drawn. The shape of a drawn tree must not depend on drawn values. Nothing may be copied to the host. A row of
            q that is all NaN rejects what was drafted from it, so that a draft whose numbers have gone bad costs acceptance alone.
            Tokens and q lie on the target's device. What can be seen of a wrong q is refused (`specdec.drafters.checking`).
        """
        ...

    def observe(self, outcome: Outcome) -> None:
        """Called after the prompt (an empty tree, if the prompt has more than one token) and after every round."""
        ...


class Drafter(Protocol):
    """A way to draft, configured once and used for any number of requests.

    A drafter that reads the outputs of the target's inner layers names them in `layers`, a sequence of indices from 0; others
    need not have that attribute.
    """

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
