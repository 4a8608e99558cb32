"""generate and stream: the one loop that every method shares.

    draft     the drafter proposes a token tree behind the last committed token
    verify    the target scores the whole tree in one forward, an exact rule picks a path and one more token
    commit    the cache keeps the accepted path and rolls the rest back

Plain decoding is the same loop with an empty tree.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec.cache import KVCache
from specdec.distributions import Sampling
from specdec.drafters.base import Drafter, Proposer
from specdec.models.transformer import Output, Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Purpose, Uniforms
from specdec.verification import Verdict, verify_chain, verify_tree

Prompt = str | Sequence[int] | Tensor


@dataclass(frozen=True)
class Round:
    """One target forward.

    tokens: the new ids, in order: the accepted ones, then one *recovered* (after a rejection), *bonus* (after a full acceptance)
        or *plain* (nothing was drafted) token. Cut at a stop token or the budget.
    accepted: how many of `tokens` were drafted.
    drafted: tokens on the longest path that was proposed.
    last: what the final token is: "recovered", "bonus", "plain", or "accepted" if the text ended inside the accepted part.
    seconds: time spent on this round.
    """

    tokens: list[int]
    accepted: int
    drafted: int
    last: str
    seconds: float


@dataclass
class Stats:
    """Sums over the rounds. Tokens behind a stop token or the budget are not counted as accepted, since nobody got them."""

    forwards: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    seconds: float = 0.0

    def add(self, round: Round) -> None:
        self.forwards += 1
        self.drafted += round.drafted
        self.accepted += round.accepted
        self.emitted += len(round.tokens)
        self.seconds += round.seconds

    @property
    def tokens_per_forward(self) -> float:
        """τ; 1.0 for plain decoding."""
        return self.emitted / self.forwards if self.forwards else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens. Below α of the theory: tokens behind a rejection count as drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.emitted / self.seconds if self.seconds else 0.0


@dataclass
class Generation:
    """tokens: the new ids, a stop token included if one ended the text. text: None if the model has no tokenizer."""

    tokens: list[int]
    text: str | None
    stats: Stats
    rounds: list[Round] = field(repr=False)


def generate(
    target: Transformer,
    prompt: Prompt,
    drafter: Drafter | None = None,
    sampling: Sampling = Sampling(),
    max_new_tokens: int = 128,
    stop_tokens: Sequence[int] = (),
    seed: int = 0,
) -> Generation:
    """Continues the prompt; with any drafter the text has exactly the target's distribution.

    Args:
        prompt: ids (a list, or a tensor (T,)), or text if the target has a tokenizer.
        drafter: None decodes plainly.
        max_new_tokens: the budget, >= 1; never exceeded.
        stop_tokens: the text ends with the first of these, wherever in a round it falls.
        seed: same seed, same output; of a drafter that proposes nothing, the same as plain decoding.

    Raises:
        ValueError: on an empty prompt, an id outside the vocabulary, prompt + max_new_tokens beyond the model's context, or a
            drafter that does not fit the target. Before any work is done.
    """
    rounds = list(stream(target, prompt, drafter, sampling, max_new_tokens, stop_tokens, seed))
    stats, tokens = Stats(), []
    for round in rounds:
        stats.add(round)
        tokens += round.tokens
    text = target.tokenizer.decode(tokens) if target.tokenizer else None
    return Generation(tokens, text, stats, rounds)


def stream(
    target: Transformer,
    prompt: Prompt,
    drafter: Drafter | None = None,
    sampling: Sampling = Sampling(),
    max_new_tokens: int = 128,
    stop_tokens: Sequence[int] = (),
    seed: int = 0,
) -> Iterator[Round]:
    """`generate`, yielding one Round per target forward. The arguments are checked when it is called, not at the first round."""
    committed = prompt_ids(target, prompt)
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be >= 1, got {max_new_tokens}")
    longest = len(committed) + max_new_tokens
    if longest > target.config.max_length:
        raise ValueError(
            f"a prompt of {len(committed)} tokens and max_new_tokens = {max_new_tokens} make {longest}; "
            f"the model's context is {target.config.max_length}"
        )
    proposer = None if drafter is None else drafter.start(target, sampling, longest)
    # The last new token is never run through the target, hence one slot less; a tree needs room beside the path that is kept.
    cache = target.new_cache(longest - 1 + (drafter.max_nodes if drafter else 0))
    return rounds(target, cache, committed, proposer, sampling, longest, frozenset(stop_tokens), Uniforms(seed))


@torch.inference_mode()
def rounds(
    target: Transformer,
    cache: KVCache,
    committed: list[int],
    proposer: Proposer | None,
    sampling: Sampling,
    longest: int,
    stop_tokens: frozenset[int],
    uniforms: Uniforms,
) -> Iterator[Round]:
    """The loop. Every round runs the committed tokens that the cache lacks (first the whole prompt, later the newest token) and
    the tree behind them. `committed` grows in place."""
    while len(committed) < longest:
        began, root = time.perf_counter(), len(committed) - 1  # the root's slot; node i lies in slot root + 1 + i
        limit = longest - len(committed) - 1
        tree = proposer.propose(committed, limit, uniforms) if proposer and limit else TokenTree.empty(target.device)
        new = torch.tensor(committed[cache.length :], device=target.device)
        layout = {} if tree.is_chain else _layout(tree, len(new), cache.length)
        output = target(torch.cat([new, tree.tokens])[None], cache, rows=len(tree) + 1, **layout)
        verdict = _verify(sampling.probabilities(output.logits[0]), tree, uniforms, len(committed))
        path, drafted, next_token = _to_host(verdict, tree)
        cache.keep([root, *(root + 1 + node for node in path)])
        if proposer:
            proposer.observe(path, _rows(output, tree, path))
        emitted = _until_stop([*drafted, next_token], stop_tokens)
        committed += emitted
        if len(emitted) < len(path) + 1:
            last = "accepted"
        elif not len(tree):
            last = "plain"
        else:
            last = "recovered" if tree.children(path[-1] if path else -1) else "bonus"
        depth = int(tree.depths.max()) if len(tree) else 0
        yield Round(emitted, min(len(path), len(emitted)), depth, last, time.perf_counter() - began)
        if emitted[-1] in stop_tokens:
            return


def _layout(tree: TokenTree, new: int, cached: int) -> dict[str, Tensor]:
    """Positions and mask of `new` committed tokens with a branching tree behind them. A chain needs neither."""
    T = new + len(tree)
    positions = torch.cat([torch.arange(cached, cached + new), cached + new - 1 + tree.depths])
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    mask[new:, new:] = tree.mask
    return {"positions": positions, "mask": mask}


def _to_host(verdict: Verdict, tree: TokenTree) -> tuple[list[int], list[int], int]:
    """Accepted nodes, their tokens, and the next token. The one synchronisation with the device in a round."""
    chain = verdict.path is None
    path = torch.arange(len(tree), device=tree.tokens.device) if chain else verdict.path
    count, next_token, *ids = torch.cat([verdict.count[None], verdict.next_token[None], path, tree.tokens]).tolist()
    nodes, tokens = ids[:count], ids[len(path) :]
    return nodes, [tokens[node] for node in nodes], next_token


def _rows(output: Output, tree: TokenTree, path: list[int]) -> Output:
    """The target's output on the root and the accepted path."""
    first = output.hidden.shape[1] - len(tree) - 1
    if tree.is_chain:
        return Output(output.logits[:, : len(path) + 1], output.hidden[:, first : first + len(path) + 1])
    rows = torch.tensor([0, *(node + 1 for node in path)], device=output.logits.device)
    return Output(output.logits[:, rows], output.hidden[:, first + rows])


def _until_stop(ids: list[int], stop_tokens: frozenset[int]) -> list[int]:
    """The ids up to and including the first stop token."""
    return next((ids[: i + 1] for i, token in enumerate(ids) if token in stop_tokens), ids)


def _verify(p: Tensor, tree: TokenTree, uniforms: Uniforms, position: int) -> Verdict:
    coins = uniforms.draw(Purpose.VERIFY, position, len(tree))
    u = torch.cat([coins, uniforms.draw(Purpose.NEXT, position, 1)]).to(p.device)
    if tree.is_chain:
        return verify_chain(p, None if tree.q is None else tree.q[: len(tree)], tree.tokens, u)
    return verify_tree(p, tree, u)


def prompt_ids(target: Transformer, prompt: Prompt) -> list[int]:
    """The prompt as a new list of ids, checked against the target's vocabulary."""
    if isinstance(prompt, str):
        if target.tokenizer is None:
            raise ValueError("a text prompt needs a target with a tokenizer; give ids")
        prompt = target.tokenizer.encode(prompt)
    ids = torch.as_tensor(prompt)
    if ids.dim() != 1 or ids.numel() == 0:
        raise ValueError(f"the prompt must be a list of at least one token, got shape {tuple(ids.shape)}")
    if ids.is_floating_point() or ids.min() < 0 or ids.max() >= target.config.vocab_size:
        raise ValueError(f"prompt ids must be whole numbers in [0, {target.config.vocab_size}), got {ids.tolist()[:8]} …")
    return ids.tolist()
