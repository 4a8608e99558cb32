"""Lookahead: the target's own guesses about later positions, refined from round to round (Fu et al. 2402.02057)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.config import check_whole
from specdec.device import on_host, upload
from specdec.distributions import Sampling
from specdec.drafters.base import Outcome
from specdec.drafters.merging import match_paths, point_masses, renamed, without
from specdec.models.transformer import Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms


@dataclass(frozen=True)
class Lookahead:
    """Proposes n-grams that Jacobi iteration came by, and goes on iterating in the same forward (2402.02057, section 3).

    Jacobi decoding guesses the next W tokens and lets the target say, for all of them at once, what follows each; what it
    says are the next guesses. Lookahead keeps the last N - 1 guesses of each position, the levels of a window of W columns.
    The window is a part of the proposed tree: its oldest level is a chain c₁ → … → c_W behind the root, and from c_j hangs
    column j's later levels, one below the other. The ancestor mask of the tree is then the mask of the paper's lookahead
    branch: the node of level r in column j stands at depth j + r and sees c₁ … c_j and the levels 1 … r of its own column.
    The target's argmax behind the last level is the column's next guess, and with the column it makes an n-gram, which goes
    into a pool.

    The other part of the tree is what the pool knows behind the last committed token. No token is drawn and none depends on the
    round's coins: all are point masses, and the text has the target's distribution at any temperature.

    Args:
        window: W, columns of guesses, >= 1.
        ngram: N, tokens of an n-gram, >= 2; the window has N - 1 levels. With N = 2 the window alone is Jacobi decoding.
        pool: how many n-grams to keep for each first token, and so how many to propose, >= 0. They are distinct, and the most
            recent: of one round the one nearest to the root.

    The window begins with the last W tokens of the prompt as its only level (a shorter prompt goes round); each of the first N - 2
    rounds adds a level, and every later one drops the oldest too. A round that has less room than the window is deep leaves out the
    last columns.

    The pool is a table on the target's device, (V, pool, N - 1) int32: the continuations of every token of the vocabulary, 6 MB for
    V = 49,152, pool = 8 and N = 5, whatever the length of the text. The row to propose from is that of a token that the host
    knows, and the rows to write are those of the window, which never leaves the device. So no token has to be asked for.

    Raises:
        ValueError: if a number is out of its range.
    """

    window: int = 8
    ngram: int = 4
    pool: int = 8

    def __post_init__(self) -> None:
        for name, least in (("window", 1), ("ngram", 2), ("pool", 0)):
            check_whole(name, getattr(self, name), least)

    @property
    def max_nodes(self) -> int:
        return (self.ngram - 1) * (self.window + self.pool)

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _Proposer:
        return _Proposer(self, target)


class _Proposer:
    def __init__(self, drafter: Lookahead, target: Transformer):
        self.drafter, self.device = drafter, target.device
        shape = (target.config.vocab_size, drafter.pool, drafter.ngram - 1)
        self.pool = torch.full(shape, -1, dtype=torch.int32, device=self.device)  # a first token's continuations; -1: none
        self.window: Tensor | None = None  # (levels, W), the oldest level first
        self.columns = 0  # of the window, that the present tree holds
        self.rows: Tensor | None = None  # (columns,) rows of the logits behind the window's last level

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        W = self.drafter.window
        if self.window is None:
            recent = committed[-W:]
            self.window = upload([[recent[i % len(recent)] for i in range(W)]], self.device)
        deep = min(self.drafter.ngram - 1, limit)
        found = self.pool[committed[-1], :, :deep].long()  # (pool, deep), the most recent first
        P = found.numel()
        levels = len(self.window)
        self.columns = columns = max(0, min(W, limit - levels + 1))
        guesses = self.window[:, :columns].flatten()

        tokens = torch.cat([found.clamp_min(0).flatten(), guesses])
        chains = [node - 1 if node % deep else -1 for node in range(P)]
        # Level by level: c_j hangs from the node before it, every other node from the one a level above.
        window = [-1, *range(P, P + columns - 1)][:columns] + list(range(P, P + (levels - 1) * columns))
        parents = upload(torch.tensor(chains + window, dtype=torch.long), self.device)
        parents = torch.where(F.pad(found.flatten() < 0, (0, len(guesses))), -2, parents)
        depth = max(deep if P else 0, columns + levels - 1 if columns else 0)
        tree, places = merge_paths(tokens, parents, depth, self.drafter.pool + 2)
        self.rows = places[len(places) - columns :] + 1
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Reads the target's next guesses, harvests an n-gram from each full column, and moves the window a level on."""
        if not len(outcome.tree) or not self.columns:  # after the prompt, or without room for a window
            return
        guesses = outcome.logits[self.rows].argmax(-1)  # (columns,)
        levels = self.drafter.ngram - 1
        if len(self.window) == levels:
            remember(self.pool, torch.cat([self.window[:, : self.columns], guesses[None]]).T)
        # A column that was left out keeps its guess.
        newest = torch.cat([guesses, self.window[-1, self.columns :]])
        self.window = torch.cat([self.window, newest[None]])[-levels:]


def merge_paths(tokens: Tensor, parents: Tensor, depth: int, branching: int) -> tuple[TokenTree, Tensor]:
    """The tree of nodes (N,) in which every path stands once, and the place (N,) that each node has got in it.

    On an accelerator a node whose path stands there already stays as padding, for its number is not known to the host. On a CPU,
    where such nodes would cost the target time, they are left out.
    """
    match = match_paths(tokens, parents, depth)
    again = match != torch.arange(len(tokens), device=tokens.device)
    parents = renamed(parents, match).masked_fill(again, -2)
    if on_host(tokens.device):
        tokens, parents, places = without(parents < -1, tokens, parents)
        match = places[match]
    return point_masses(tokens, parents, depth, branching), match


def remember(pool: Tensor, grams: Tensor) -> None:
    """Puts n-grams in front of the known continuations of their first tokens, and cuts what is too many.

    Args:
        pool: (V, G, N - 1), changed in place; -1 where nothing is.
        grams: (W, N); among those with the same first token an earlier one counts as more recent.
    """
    (W, _), G = grams.shape, pool.shape[1]
    first, rest = grams[:, 0], grams[:, 1:].to(pool.dtype)
    known = torch.cat([rest.expand(W, *rest.shape), pool[first]], dim=1)  # (W, W + G, N - 1), for the first token of each n-gram
    there = torch.cat([first[:, None] == first, pool[first][..., 0] >= 0], dim=1)
    alike = (known[:, :, None] == known[:, None]).all(-1) & there[:, None]
    there &= ~alike.tril(-1).any(-1)  # it came before
    order = (~there).int().argsort(dim=1, stable=True)[:, :G]
    chosen = known.gather(1, order[..., None].expand(-1, -1, known.shape[-1]))
    # Columns with one first token have found the same continuations, so it does not matter which of them writes last.
    pool[first] = chosen.masked_fill(~there.gather(1, order)[..., None], -1)
