"""generate and stream: the one loop that every method shares.

    draft     the drafter proposes a token tree behind the last committed token
    verify    the target scores the whole tree in one forward, an exact rule picks a path and one more token
    commit    the cache keeps the accepted path and rolls the rest back

Plain decoding is the same loop with an empty tree. A batch runs the same loop over several requests at once: their trees share the
target's forward, and each keeps its own length in the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from specdec.cache import KVCache
from specdec.config import check_size, check_whole
from specdec.continuation import Continuation
from specdec.device import upload
from specdec.distributions import Sampling
from specdec.drafters.base import Drafter, Outcome, Proposer
from specdec.drafters.checking import Acquaintance, acquaintance, begin, check_drafter, check_layers, check_proposal
from specdec.judging import Decision, decide
from specdec.models.fixed_shape import check_width
from specdec.models.transformer import Output, Transformer, check_model
from specdec.prompts import Prompt, batch_ids, is_batch, stop_ids
from specdec.results import Generation, Round, Stats
from specdec.tree import TokenTree
from specdec.uniforms import Purpose, Uniforms


@dataclass
class Request:
    """One text at work: a row of the batch. `committed` grows in place, up to `longest` tokens."""

    committed: list[int]
    longest: int
    proposer: Proposer | None
    uniforms: Uniforms
    layers: Sequence[int] = ()  # of the target, whose outputs the proposer reads
    max_nodes: int | None = None  # of a tree, as the drafter promised; None: not known
    known: Acquaintance = field(default_factory=Acquaintance)  # a drafter that is new gets closer looks

    @classmethod
    def begin(
        cls,
        target: Transformer,
        committed: list[int],
        budget: int,
        drafter: Drafter | None,
        sampling: Sampling,
        uniforms: Uniforms,
    ) -> Request:
        """Raises ValueError if the text could outgrow the model's context, or the drafter does not fit the target."""
        longest = len(committed) + budget
        if longest > target.config.max_length:
            raise ValueError(
                f"a prompt of {len(committed)} tokens and max_new_tokens = {budget} make {longest}; "
                f"the model's context is {target.config.max_length}"
            )
        if drafter is None:
            return cls(committed, longest, None, uniforms)
        proposer = begin(drafter, target, sampling, longest)
        layers = check_layers(drafter, target.config.layers)
        return cls(committed, longest, proposer, uniforms, layers, drafter.max_nodes, acquaintance(drafter))

    def draft(self, target: Transformer) -> TokenTree:
        """Raises ValueError if the proposer breaks its promises (`check_proposal`)."""
        limit = self.longest - len(self.committed) - 1
        if self.proposer is None or not limit:
            return TokenTree.empty(target.device)
        shown = list(self.committed)  # a copy, so that no proposer can touch the text
        tree = self.proposer.propose(shown, limit, self.uniforms)
        if shown != self.committed:
            raise ValueError(
                f"the proposer changed `committed`, the {len(self.committed)} tokens that it was shown: "
                f"they end with {self.committed[-4:]}, and it left {shown[-4:]} at the end of {len(shown)}; let it copy the list"
            )
        check_proposal(tree, limit, self.max_nodes, target.config.vocab_size, target.device, self.known.is_new)
        self.known.trees += tree.q is not None
        return tree

    def has_ended(self, stop_tokens: frozenset[int]) -> bool:
        return len(self.committed) >= self.longest or self.committed[-1] in stop_tokens

    def draw(self, nodes: int) -> Tensor:
        """(nodes + 1,): the coins of the tree, and the number that chooses the next token."""
        position = len(self.committed)
        coins = [self.uniforms.draw(Purpose.VERIFY, position, nodes)] if nodes else []
        return torch.cat([*coins, self.uniforms.draw(Purpose.NEXT, position, 1)])


def generate(
    target: Transformer,
    prompt: Prompt | Sequence[Prompt],
    drafter: Drafter | None = None,
    sampling: Sampling = Sampling(),
    max_new_tokens: int = 128,
    stop_tokens: Sequence[int] = (),
    seed: int = 0,
    width: int | None = None,
    request: int = 0,
) -> Generation | list[Generation]:
    """Continues the prompt; with any drafter the text has exactly the target's distribution.

    Args:
        prompt: ids (a list, or a tensor (T,)), or text if the target has a tokenizer. A list of prompts, or a tensor (B, T), is a
            batch: every row comes out as it would alone, and the result is a list.
        drafter: None decodes plainly.
        max_new_tokens: the budget, >= 1; never exceeded.
        stop_tokens: ids; the text ends with the first of these, wherever in a round it falls.
        seed: same seed, same output; of a drafter that proposes nothing, the same as plain decoding.
        width: run every forward of the target in the shape of this many tokens, plain decoding too, so that at temperature 0 the
            text of any drafter is that of plain decoding to the last token in any precision. A tree may have width - 1 nodes. One
            prompt only.
        request: tells texts of one prompt and seed apart. In a batch the k-th repetition of a prompt is request + k.

    Raises:
        ValueError: on an empty prompt, an id outside the vocabulary, prompt + max_new_tokens beyond the model's context, a
            drafter that does not fit the target, or a width that does not hold the tree. Before any work is done. In a round:
            before the target runs, if a proposer breaks its promises (`specdec.drafters.checking`: a tree that is too large, an id
            that is none, a q that its tokens cannot come from; every number of q is looked at in a drafter's first rounds, later
            those that cost nothing); before a token is committed, if it would have to be drawn from logits that have a NaN or a
            +inf, or are all -inf. Single logits may be -inf.
    """
    steps = stream(target, prompt, drafter, sampling, max_new_tokens, stop_tokens, seed, width, request)
    if not is_batch(prompt):
        return _generation(list(steps))
    runs: list[list[Round]] = [[] for _ in prompt]
    for step in steps:
        for run, round in zip(runs, step, strict=True):
            if round is not None:
                run.append(round)
    return [_generation(run) for run in runs]


def _generation(rounds: list[Round]) -> Generation:
    stats, tokens = Stats(), []
    for round in rounds:
        stats.add(round)
        tokens += round.tokens
    texts = [round.text for round in rounds]
    return Generation(tokens, None if None in texts else "".join(texts), stats, rounds)


def stream(
    target: Transformer,
    prompt: Prompt | Sequence[Prompt],
    drafter: Drafter | None = None,
    sampling: Sampling = Sampling(),
    max_new_tokens: int = 128,
    stop_tokens: Sequence[int] = (),
    seed: int = 0,
    width: int | None = None,
    request: int = 0,
) -> Iterator[Round] | Iterator[list[Round | None]]:
    """`generate`, yielding one Round per target forward; for a batch a list with one for each row, None for rows that have ended.

    The arguments are checked when it is called, not at the first round.
    """
    check_model("target", target)
    batch = is_batch(prompt)
    texts = batch_ids(target, prompt)
    stops = stop_ids(target, stop_tokens)
    if not isinstance(sampling, Sampling):
        raise ValueError(f"sampling must be a Sampling, got {sampling!r}")
    check_size("max_new_tokens", max_new_tokens)
    check_whole("request", request)
    if width is not None:
        check_whole("width", width)
    if drafter is not None:
        check_drafter(drafter)
    nodes = drafter.max_nodes if drafter is not None else 0
    if width is not None and (batch or not nodes < width):
        raise ValueError(
            f"width = {width} takes one prompt and a drafter of at most {width - 1} nodes, got {len(texts)} prompts and {nodes} nodes"
        )
    repetitions = [texts[:row].count(text) for row, text in enumerate(texts)]
    requests = [
        Request.begin(target, text, max_new_tokens, drafter, sampling, Uniforms(seed, request + repetition))
        for text, repetition in zip(texts, repetitions, strict=True)
    ]
    # The last new token is never run through the target, hence one slot less; a tree needs room beside the path that is kept.
    slots = max(one.longest for one in requests) - 1 + (nodes if width is None else width)
    cache = target.new_cache(slots, len(requests))
    if width is not None:
        check_width(target, cache, width)
    steps = rounds(target, cache, requests, sampling, stops, width)
    if target.tokenizer is not None:
        steps = _told(steps, requests, stops, target.tokenizer.decode)
    return steps if batch else (round for (round,) in steps)


def _told(
    steps: Iterator[list[Round | None]], requests: Sequence[Request], stops: frozenset[int], decode: Callable[[list[int]], str]
) -> Iterator[list[Round | None]]:
    """The rounds with their texts."""
    texts = [Continuation(decode, request.committed) for request in requests]
    for step in steps:
        found: list[Round | None] = []
        for round, request, text in zip(step, requests, texts, strict=True):
            if round is not None:
                new = text.push(round.tokens)
                round = replace(round, text=new + text.finish() if request.has_ended(stops) else new)
            found.append(round)
        yield found


@torch.inference_mode()
def rounds(
    target: Transformer,
    cache: KVCache,
    requests: Sequence[Request],
    sampling: Sampling = Sampling(),
    stop_tokens: frozenset[int] = frozenset(),
    width: int | None = None,
) -> Iterator[list[Round | None]]:
    """The loop. First the prompts but for their last tokens; then every round runs the newest token of each text, the root, and the
    tree behind it. Row b of the empty cache belongs to requests[b]."""
    began = time.perf_counter()
    for row, request in enumerate(requests):
        _prefill(target, cache.row(row), request, width)
    active = list(range(len(requests)))  # the request of each row of the cache
    while active:
        batch = [requests[index] for index in active]
        found: list[Round | None] = [None] * len(requests)
        for index, round in zip(active, round_of(target, cache, batch, sampling, stop_tokens, width), strict=True):
            found[index] = replace(round, seconds=time.perf_counter() - began)
        yield found
        began = time.perf_counter()
        for row in reversed(range(len(batch))):
            if batch[row].has_ended(stop_tokens):
                active[row] = active[-1]
                active.pop()
                if active:
                    cache.drop(row)


def round_of(
    target: Transformer,
    cache: KVCache,
    batch: Sequence[Request],
    sampling: Sampling,
    stop_tokens: frozenset[int] = frozenset(),
    width: int | None = None,
) -> list[Round]:
    """One round: draft, verify, commit. Row b of the cache holds all but the newest token of batch[b]."""
    began = time.perf_counter()
    trees = [request.draft(target) for request in batch]
    newest, nodes = [request.committed[-1] for request in batch], max(map(len, trees))
    u = [request.draw(nodes) for request in batch]
    decided, output = decide(target, cache, newest, trees, u, sampling, batch[0].layers, width)
    found = []
    for request, one in zip(batch, decided, strict=True):
        _check_drawn(request, one, target.config.vocab_size)
    for row, (request, one) in enumerate(zip(batch, decided, strict=True)):
        if request.proposer is not None:
            request.proposer.observe(_outcome(output, row, trees[row], one))
        emitted = _until_stop([*one.accepted, one.next_token], stop_tokens)
        request.committed += emitted
        last = one.last if len(emitted) > len(one.path) else "accepted"
        found.append(Round(emitted, min(len(one.path), len(emitted)), one.depth, last, time.perf_counter() - began))
    return found


def _prefill(target: Transformer, cache: KVCache, request: Request, width: int | None) -> None:
    """Everything but the last token of the prompt, at once or in pieces of the fixed width."""
    new, outputs = request.committed[:-1], []
    for start in range(0, len(new), width or len(new) or 1):
        piece = new[start : start + (width or len(new))]
        padding = [0] * (width - len(piece)) if width else []
        tokens = upload([piece + padding], target.device)
        output = target(tokens, cache, rows=0, layers=request.layers, fixed=width is not None)
        cache.rollback(start + len(piece))
        outputs.append(_rows(output, 0, slice(len(piece))))
    if new and request.proposer is not None:
        hidden, layers = zip(*outputs, strict=True)
        nothing = hidden[0].new_empty(0, target.config.vocab_size)
        inner = torch.cat(layers) if request.layers else None
        request.proposer.observe(Outcome([], TokenTree.empty(target.device), nothing, torch.cat(hidden), inner))


def _check_drawn(request: Request, one: Decision, vocab_size: int) -> None:
    """Rows that are not numbers choose a token that there is not (`inverse_cdf`): so the host hears of them without asking."""
    if not 0 <= one.next_token < vocab_size:
        raise ValueError(
            f"behind {len(request.committed) + len(one.path)} tokens the target's logits have a NaN or a +inf, or are all -inf, "
            "so that no token can be drawn; look for corrupt weights, or a dtype that overflows"
        )


def _outcome(output: Output, row: int, tree: TokenTree, one: Decision) -> Outcome:
    """What a row's proposer gets to see."""
    if tree.tokens.device.type != "cpu":
        tree = TokenTree(one.tokens[: len(tree)], one.parents[: len(tree)])
    rows = slice(len(one.path) + 1)
    if one.path != list(range(len(one.path))):
        rows = upload([0, *(node + 1 for node in one.path)], output.hidden.device)
    return Outcome(one.path, tree, output.logits[row, : len(tree) + 1], *_rows(output, row, rows))


def _rows(output: Output, row: int, rows: slice | Tensor) -> tuple[Tensor, Tensor | None]:
    return output.hidden[row, rows], None if output.layers is None else output.layers[row, rows]


def _until_stop(ids: list[int], stop_tokens: frozenset[int]) -> list[int]:
    """The ids up to and including the first stop token."""
    return next((ids[: i + 1] for i, token in enumerate(ids) if token in stop_tokens), ids)
