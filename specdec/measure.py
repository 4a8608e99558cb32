"""Measuring: methods side by side, what a round costs, how far a draft is from the target.

Speeds are of decoding: the first round of a text, which holds the prompt's forward, is left out on both sides of a ratio, its tokens
and its seconds. Beside that stands the ratio of whole texts, the prompt's forward included on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean

import numpy as np
import torch
from torch import Tensor

from specdec.decoding import stream
from specdec.distributions import Sampling, acceptance_rate
from specdec.drafters import Drafter, DraftModel, Eagle
from specdec.drafters.base import Outcome, Proposer
from specdec.models import Output, Transformer
from specdec.prompts import Prompt, prompt_ids
from specdec.results import Round
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms

PLAIN = "none"  # the name of plain decoding among the methods
FEW = 8  # tokens that warm a method up
# (a prompt's ids, seed) → the rounds of one text. A program that does not tell its ids fills in -1.
Runner = Callable[[list[int], int], list[Round]]
Samples = dict[str, list[list[list[Round]]]]  # method → repeat → prompt → rounds
Text = tuple[list[int], list[int]]  # a prompt's ids, and the new ones behind it


@dataclass(frozen=True)
class Cost:
    """What a round of a method costs, in plain decoding steps, and how large its trees are.

    draft: the time of drafting: `propose` and `observe`. nodes: the mean size of a tree. verify: the mean of r(nodes), the target's
    forward.
    """

    draft: float
    nodes: float
    verify: float


@dataclass(frozen=True)
class Row:
    """What one method did on a workload.

    tau: tokens per target forward, over all rounds. alphas, trials: `acceptance_by_depth`.
    rates: tokens/s of decoding, for each repeat. ratios: over plain decoding's rate of the same repeat. whole: the same for whole texts.
    parted: prompts whose text is not plain decoding's, at temperature 0; None above it, and where the ids are not known.
    cost: None for plain decoding and programs that are not ours.
    """

    tau: float
    alphas: list[float]
    trials: list[int]
    tokens: int
    forwards: int
    rates: list[float]
    ratios: list[float]
    whole: list[float]
    parted: int | None
    cost: Cost | None = None

    @property
    def predicted(self) -> float | None:
        """The speedup that τ and the costs make one expect: τ / (draft + verify), `theory.speedup` with measured numbers in it."""
        return None if self.cost is None else self.tau / (self.cost.draft + self.cost.verify)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    return low, middle, high


def compare(
    target: Transformer,
    methods: Mapping[str, Drafter | None],
    prompts: Sequence[Prompt],
    sampling: Sampling,
    max_new_tokens: int = 128,
    repeats: int = 5,
    seed: int = 0,
    stop_tokens: Sequence[int] = (),
    verify: Callable[[int], float] | None = None,
    peers: Mapping[str, Runner] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Row], list[list[int]]]:
    """All methods on the same prompts, in turn, in one process.

    First everybody writes a few tokens, so that kernels are chosen and layers traced. Then all run through all prompts once, which
    shows what drafting costs and does not count otherwise. Then for each repeat and each prompt all methods take turns, and the one
    that begins changes with the repeat. Repeat r has the seed seed + r.

    Args:
        methods: by name; plain decoding, `PLAIN`: None, must be among them.
        verify: r(K), the cost of a forward of K drafted tokens and the one before them (`theory.interpolated_cost`). Without it
            no `Row` has a cost.
        peers: other programs, who take turns too.
        advance: called after every text; `texts_in` says how many there will be.

    Returns:
        A row for each method and peer, and the new ids of plain decoding's first repeat, for each prompt.

    Raises:
        ValueError: if plain decoding is missing, there is no prompt or repeat, or no text of a method has a second round.
    """
    if PLAIN not in methods or methods[PLAIN] is not None:
        raise ValueError(f"the methods need plain decoding, {PLAIN!r}: None, to be compared with; got {list(methods)}")
    if not prompts or repeats < 1:
        raise ValueError(f"at least one prompt and one repeat are needed, got {len(prompts)} and {repeats}")
    ids = [prompt_ids(target, prompt) for prompt in prompts]

    def runner(drafter: Drafter | None, tokens: int = max_new_tokens) -> Runner:
        return lambda text, seed: list(stream(target, text, drafter, sampling, tokens, stop_tokens, seed))

    for drafter in methods.values():
        runner(drafter, min(FEW, max_new_tokens))(ids[0], seed)
    timed = {name: None if drafter is None else Timed(drafter) for name, drafter in methods.items()}
    rehearsal = interleaved({name: runner(d) for name, d in timed.items()} | dict(peers or {}), ids, 1, seed, advance)
    step = 1 / decoding_rate(PLAIN, rehearsal[PLAIN][0])
    costs = {name: drafter.cost(step, verify) for name, drafter in timed.items() if drafter and verify}
    samples = interleaved({name: runner(d) for name, d in methods.items()} | dict(peers or {}), ids, repeats, seed, advance)
    return rows_of(samples, sampling.greedy, costs), [tokens_of(rounds) for rounds in samples[PLAIN][0]]


def texts_in(methods: int, prompts: int, repeats: int) -> int:
    """How many texts `compare` makes."""
    return methods * prompts * (repeats + 1)


def interleaved(
    runners: Mapping[str, Runner], prompts: Sequence[list[int]], repeats: int, seed: int, advance: Callable[[], None]
) -> Samples:
    """For each repeat and prompt every runner once; the first of them is another one in each repeat."""
    names, samples = list(runners), {name: [[] for _ in range(repeats)] for name in runners}
    for repeat in range(repeats):
        first = repeat % len(names)
        for prompt in prompts:
            for name in names[first:] + names[:first]:
                samples[name][repeat].append(runners[name](prompt, seed + repeat))
                advance()
    return samples


def rows_of(samples: Samples, greedy: bool, costs: Mapping[str, Cost]) -> dict[str, Row]:
    plain = samples[PLAIN]
    plain_rates, plain_whole = [decoding_rate(PLAIN, texts) for texts in plain], [whole_rate(texts) for texts in plain]
    rows = {}
    for name, repeats in samples.items():
        rounds = [round for texts in repeats for text in texts for round in text]
        alphas, trials = acceptance_by_depth(rounds)
        tokens, rates = sum(len(round.tokens) for round in rounds), [decoding_rate(name, texts) for texts in repeats]
        rows[name] = Row(
            tau=tokens / len(rounds),
            alphas=alphas,
            trials=trials,
            tokens=tokens,
            forwards=len(rounds),
            rates=rates,
            ratios=[rate / own for rate, own in zip(rates, plain_rates, strict=True)],
            whole=[whole_rate(texts) / own for texts, own in zip(repeats, plain_whole, strict=True)],
            parted=parted(repeats, plain) if greedy else None,
            cost=costs.get(name),
        )
    return rows


def acceptance_by_depth(rounds: Sequence[Round]) -> tuple[list[float], list[int]]:
    """α at depth 1, 2, …: of the rounds that proposed a path of d tokens and accepted d - 1, the share that accepted d; and how many
    rounds those were.

    A round that was cut behind d - 1 accepted tokens, by a stop token or the budget, says nothing about depth d. In a tree an
    accepted path may end at a leaf above depth d, where nothing was proposed behind it: that is a miss too, the tree's own.
    """
    alphas, trials = [], []
    for depth in range(1, max((round.drafted for round in rounds), default=0) + 1):
        tried = [r for r in rounds if r.drafted >= depth and r.accepted >= depth - 1]
        tried = [r for r in tried if r.accepted >= depth or r.last != "accepted"]
        if not tried:
            break
        alphas.append(sum(r.accepted >= depth for r in tried) / len(tried))
        trials.append(len(tried))
    return alphas, trials


def decoding_rate(name: str, texts: Sequence[Sequence[Round]]) -> float:
    """Tokens/s over several texts, their first rounds left out.

    Raises:
        ValueError: naming the method, if no text has a second round.
    """
    later = [round for text in texts for round in text[1:]]
    if not later:
        raise ValueError(f"every text of {name!r} ended in its first round: there is no decoding rate; ask for more tokens")
    return sum(len(round.tokens) for round in later) / sum(round.seconds for round in later)


def whole_rate(texts: Sequence[Sequence[Round]]) -> float:
    """Tokens/s over several texts, from the prompt on."""
    rounds = [round for text in texts for round in text]
    return sum(len(round.tokens) for round in rounds) / sum(round.seconds for round in rounds)


def tokens_of(rounds: Sequence[Round]) -> list[int]:
    return [token for round in rounds for token in round.tokens]


def parted(repeats: Sequence[Sequence[Sequence[Round]]], plain: Sequence[Sequence[Sequence[Round]]]) -> int | None:
    """Prompts whose text in any repeat is not plain decoding's of that repeat; None if the ids are not known."""
    own, other = ([[tokens_of(rounds) for rounds in texts] for texts in run] for run in (repeats, plain))
    if any(-1 in tokens for texts in own for tokens in texts):
        return None
    return sum(any(texts[i] != theirs[i] for texts, theirs in zip(own, other, strict=True)) for i in range(len(own[0])))


@dataclass
class Timed:
    """A drafter with a clock: how long it drafts, and how large its trees are. Where a device works on, the clock waits for it.

    texts: for each request a list with [seconds, nodes] of every round that was drafted for.
    """

    drafter: Drafter
    clock: Callable[[], float] = time.perf_counter
    texts: list[list[list[float]]] = field(default_factory=list)

    @property
    def max_nodes(self) -> int:
        return self.drafter.max_nodes

    @property
    def layers(self) -> Sequence[int]:
        return getattr(self.drafter, "layers", ())

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _TimedProposer:
        self.texts.append([])
        return _TimedProposer(self.drafter.start(target, sampling, max_length), self._clock_of(target.device), self.texts[-1])

    def _clock_of(self, device: torch.device) -> Callable[[], float]:
        if device.type != "cuda":
            return self.clock

        def clock() -> float:
            torch.cuda.synchronize(device)
            return self.clock()

        return clock

    def cost(self, step: float, verify: Callable[[int], float]) -> Cost:
        """Means over all rounds but the first of each text, which catches up with the prompt. step: seconds of a plain decoding step.

        Raises:
            ValueError: if no text has a second round.
        """
        later = [round for text in self.texts for round in text[1:]]
        if not later:
            raise ValueError("no text has a second round that was drafted for; ask for more tokens")
        seconds, nodes = zip(*later, strict=True)
        return Cost(mean(seconds) / step, mean(nodes), mean(verify(int(n)) for n in nodes))


@dataclass
class _TimedProposer:
    proposer: Proposer
    clock: Callable[[], float]
    rounds: list[list[float]]

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        began = self.clock()
        tree = self.proposer.propose(committed, limit, uniforms)
        self.rounds.append([self.clock() - began, len(tree)])
        return tree

    def observe(self, outcome: Outcome) -> None:
        began = self.clock()
        self.proposer.observe(outcome)
        if self.rounds:  # else it was the prompt
            self.rounds[-1][0] += self.clock() - began


@dataclass(frozen=True)
class Limits:
    """What the target's own texts allow a draft, means over their positions.

    entropy: of the target's distribution, in nats. largest: its largest probability, which no single drafted token that does not
    follow the draw can beat. overlaps: Σ min(p, q) of each draft that has a q: the chance that one token drawn from it is accepted.
    """

    entropy: float
    largest: float
    overlaps: dict[str, float]


def limits(target: Transformer, drafters: Mapping[str, Drafter | None], texts: Sequence[Text], sampling: Sampling) -> Limits:
    """Teacher-forced: at every position of the given texts the target and each draft say what follows.

    Args:
        drafters: those without a q in any form (`one_drawn_token`) are left out.
        texts: the target's own.
    """
    drawn = {name: one_drawn_token(drafter) for name, drafter in drafters.items()}
    drawn = {name: drafter for name, drafter in drawn.items() if drafter is not None}
    p = torch.cat([_target_rows(target, text, sampling)[0] for text in texts])
    entropy = -torch.xlogy(p, p).sum(-1).mean()
    overlaps = {name: mean(x for text in texts for x in overlaps_of(target, d, text, sampling)) for name, d in drawn.items()}
    return Limits(float(entropy), float(p.amax(-1).mean()), overlaps)


def one_drawn_token(drafter: Drafter | None) -> Drafter | None:
    """The form of a drafter that draws one token from its q; None if it has none."""
    if isinstance(drafter, DraftModel):
        return replace(drafter, k=1, tree=None)
    if isinstance(drafter, Eagle):
        return Eagle(drafter.head, tree=[-1])
    return None


@torch.inference_mode()
def _target_rows(target: Transformer, text: Text, sampling: Sampling, layers: Sequence[int] = ()) -> tuple[Tensor, Output]:
    """The target's distributions (n, V) of each new token, and its output on the text but for the last token."""
    prompt, new = text
    tokens = torch.tensor([prompt + new[:-1]], device=target.device)
    output = target(tokens, target.new_cache(tokens.shape[1]), layers=layers)
    return sampling.probabilities(output.logits[0, len(prompt) - 1 :]), output


def overlaps_of(target: Transformer, drafter: Drafter, text: Text, sampling: Sampling) -> list[float]:
    """Σ min(p, q) at each of the places of `distributions_of`."""
    return acceptance_rate(*distributions_of(target, drafter, text, sampling)).tolist()


@torch.inference_mode()
def distributions_of(target: Transformer, drafter: Drafter, text: Text, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """p and q, (n, V) each, at each new token, or at each but the first where the drafter has nothing to go by after a prompt of
    one token. The drafter sees the text as in a generation that rejects whatever it proposes.

    Raises:
        ValueError: if the drafter proposes without a q.
    """
    prompt, new = text
    p, output = _target_rows(target, text, sampling, getattr(drafter, "layers", ()))
    proposer, places, q = drafter.start(target, sampling, len(prompt) + len(new) + 1), [], []

    def observe(rows: slice, tree: TokenTree) -> None:
        layers = None if output.layers is None else output.layers[0, rows]
        logits = output.logits[0, rows][-1:].expand(len(tree) + 1, -1)  # what stands behind a rejected node nobody looks at
        proposer.observe(Outcome([], tree, logits, output.hidden[0, rows], layers))

    if len(prompt) > 1:
        observe(slice(len(prompt) - 1), TokenTree.empty())
    for i in range(len(new)):
        committed = prompt + new[:i]
        tree = proposer.propose(committed, 1, Uniforms(0))
        if len(tree) and tree.q is None:
            raise ValueError(f"{drafter!r:.80} proposes without a q, so that Σ min(p, q) is not defined")
        if len(tree):
            places.append(i)
            q.append(tree.q[0])
        observe(slice(len(committed) - 1, len(committed)), TokenTree(tree.tokens.tolist(), tree.parents.tolist()))
    return p[places], torch.stack(q) if q else p[:0]


@torch.inference_mode()
def logits_along(target: Transformer, source: Transformer | Drafter, texts: Sequence[Text]) -> Tensor:
    """Logits (n, V) for each new token, one text after the other; probabilities at any temperature follow from them.

    Args:
        source: a model, which needs one forward for a text, or a drafter with a q, which goes from place to place: its log q at
            temperature 1 is as good as logits. At the places of `distributions_of`.
    """
    rows = []
    for prompt, new in texts:
        if isinstance(source, Transformer):
            tokens = torch.tensor([prompt + new[:-1]], device=source.device)
            rows.append(source(tokens, source.new_cache(tokens.shape[1]), rows=len(new)).logits[0].float())
        else:
            rows.append(distributions_of(target, source, (prompt, new), Sampling())[1].log())
    return torch.cat(rows)
