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
from specdec.verification import Verdict, verify_chain

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
        began = time.perf_counter()
        limit = longest - len(committed) - 1
        tree = proposer.propose(committed, limit, uniforms) if proposer and limit else TokenTree.empty(target.device)
        new = torch.tensor(committed[cache.length :], device=target.device)
        output = target(torch.cat([new, tree.tokens])[None], cache, rows=len(tree) + 1)
        verdict = _verify(sampling.probabilities(output.logits[0]), tree, uniforms, len(committed))
        # The one synchronisation with the device in a round.
        count, *ids = torch.cat([verdict.count[None], tree.tokens, verdict.next_token[None]]).tolist()
        cache.rollback(len(committed) + count)
        if proposer:
            path = slice(len(new) - 1, len(new) + count)
            proposer.observe(list(range(count)), Output(output.logits[:, : count + 1], output.hidden[:, path]))
        emitted = _until_stop(ids[:count] + ids[-1:], stop_tokens)
        last = "plain" if not len(tree) else "accepted" if len(emitted) <= count else "bonus" if count == len(tree) else "recovered"
        committed += emitted
        yield Round(emitted, min(count, len(emitted)), len(tree), last, time.perf_counter() - began)
        if emitted[-1] in stop_tokens:
            return


def _until_stop(ids: list[int], stop_tokens: frozenset[int]) -> list[int]:
    """The ids up to and including the first stop token."""
    return next((ids[: i + 1] for i, token in enumerate(ids) if token in stop_tokens), ids)


def _verify(p: Tensor, tree: TokenTree, uniforms: Uniforms, position: int) -> Verdict:
    coins = uniforms.draw(Purpose.VERIFY, position, len(tree))
    u = torch.cat([coins, uniforms.draw(Purpose.NEXT, position, 1)]).to(p.device)
    return verify_chain(p, None if tree.q is None else tree.q[: len(tree)], tree.tokens, u)


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
