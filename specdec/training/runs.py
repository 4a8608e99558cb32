"""The methods as a training loop sees them: what is trained, from what it begins, its loss, how well it drafts, how it is stored."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.cache import KVCache
from specdec.drafters.distilled import DistilledDraft, copy_weights
from specdec.drafters.eagle_head import EagleHead
from specdec.drafters.heads import DraftHead
from specdec.drafters.medusa import MedusaHeads
from specdec.drafters.shared_head import head_rows
from specdec.models.transformer import Output, Transformer
from specdec.training.config import TrainConfig
from specdec.training.losses import after, eagle1_loss, medusa_loss, own_features, scored_loss, training_time_test
from specdec.training.small_gpt import next_token_loss, save_gpt

WEIGHTS, MODEL = "weights.safetensors", "model"  # of a head, a file; of a gpt, a directory
DEPTH = 5  # tokens that a draft is tested on; Medusa on as many as it has heads


class Source(Protocol):
    """Texts to learn from (`specdec.training.texts`)."""

    @property
    def texts(self) -> Sequence[np.ndarray]:
        """Ids of each text."""
        ...

    def batches(self, batch_size: int, length: int, seed: int, start_step: int = 0) -> Iterator[tuple[Tensor, ...]]:
        """Endless: tokens (B, T) int64 and mask (B, T) bool, padding at the end; behind them what is known of `Batch` already: hidden,
        or hidden and layers. Step s is a function of (seed, s)."""
        ...


@dataclass(frozen=True)
class Batch:
    """tokens (B, T), hidden (B, T, D) and layers (B, T, n D): the target's `Output` on them, None where nobody looks at it; mask (B, T)
    True where tokens are real and the target's output on them is known."""

    tokens: Tensor
    mask: Tensor
    hidden: Tensor | None = None
    layers: Tensor | None = None


class Run(ABC):
    """A method at work for one target.

    head: what is trained, in float32 (float64 beside such a target).
    ids: (n,) the tokens that the loss is over, or None for all; rows: (n, D), the target's LM head for them.
    """

    reads: tuple[int, ...] = ()  # the target's inner layers that the method looks at
    scores_all = False  # whether the whole vocabulary is scored when drafting, whatever the loss is over

    def __init__(self, config: TrainConfig, target: Transformer, ids: Tensor | None):
        self.config, self.target, self.ids = config, target, ids
        self.dtype = torch.promote_types(target.dtype, torch.float32)
        self.rows = head_rows(target, ids).to(target.device, self.dtype)
        self.head = self.build().to(target.device, self.dtype).train().requires_grad_()
        self.cache: KVCache | None = None

    @abstractmethod
    def build(self) -> DraftHead | Transformer:
        """The head as training begins."""

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """() with a gradient."""

    @abstractmethod
    def draft(self, batch: Batch) -> Iterator[tuple[Tensor, int]]:
        """For depths 1, 2, …: what is drafted at this depth of a chain behind each position, given that the text itself is what was
        drafted so far: logits (B, n, scored), and `first`: row r is to say what the target says in row r + first."""

    @property
    def depth(self) -> int:
        return self.config.heads or DEPTH

    @property
    def least(self) -> int:
        """The fewest tokens of a text that losses and drafts can be computed of."""
        return max(self.depth, self.config.ttt_steps or 0) + 2

    @torch.no_grad()
    def look(self, tokens: Tensor, mask: Tensor, hidden: Tensor | None = None, layers: Tensor | None = None) -> Batch:
        """Texts (B, T), on the target's device, with its output: of one forward, unless it is given."""
        short = max(0, self.least - tokens.shape[1])
        tokens, mask = (F.pad(x, (0, short)).to(self.target.device) for x in (tokens, mask))
        if hidden is None:
            output = self._forward(tokens)
            hidden, layers = output.hidden, output.layers
        else:
            hidden, layers = (x if x is None else F.pad(x, (0, 0, 0, short)).to(self.target.device) for x in (hidden, layers))
        return Batch(tokens, mask, hidden.to(self.dtype), None if layers is None else layers.to(self.dtype))

    def _forward(self, tokens: Tensor) -> Output:
        if self.cache is None or len(tokens) != self.cache.batch_size or tokens.shape[1] > self.cache.max_length:
            self.cache = self.target.new_cache(max(self.config.length, tokens.shape[1]), len(tokens))
        self.cache.rollback(0)
        return self.target(tokens, self.cache, rows=0, layers=self.reads)

    @torch.no_grad()
    def p(self, batch: Batch) -> Tensor:
        """(B, T, n), the target's distribution, renormalised over the tokens that the loss is over."""
        return F.linear(batch.hidden, self.rows).softmax(-1)

    def everything(self, features: Tensor) -> Tensor:
        """What the target's whole LM head makes of features: (..., V). No gradient."""
        return self.target.head(features.to(self.target.dtype))

    def save(self, out: Path) -> Path:
        """Stores the head in half precision, in the run's directory, and returns where."""
        copy.deepcopy(self.head).half().save(out / WEIGHTS)
        return out / WEIGHTS


class _Gpt(Run):
    """A target of its own (`small_gpt.new_gpt`) learns the texts themselves, and drafts nothing."""

    depth = 0

    def build(self) -> Transformer:
        return self.target

    def look(self, tokens: Tensor, mask: Tensor, *_: Tensor | None) -> Batch:
        return Batch(tokens.to(self.target.device), mask.to(self.target.device))

    def loss(self, batch: Batch) -> Tensor:
        return next_token_loss(self.head, batch.tokens, batch.mask)

    def draft(self, batch: Batch) -> Iterator[tuple[Tensor, int]]:
        return iter(())

    def save(self, out: Path) -> Path:
        save_gpt(self.head, out / MODEL)
        return out / MODEL


class _Distill(Run):
    def build(self) -> DistilledDraft:
        n, total, init = self.config.layers, self.target.config.layers, self.config.init
        if init == "random":
            return DistilledDraft.random(self.target, n, self.ids, self.config.seed)
        if n > total:
            raise ValueError(f"the target has {total} layers to copy, and the draft is to have {n}")
        spread = [round(i * (total - 1) / max(n - 1, 1)) for i in range(n)]
        chosen = {"first": range(n), "last": range(total - n, total), "spread": spread}[init]
        return DistilledDraft.copied(self.target, chosen, self.ids)

    def loss(self, batch: Batch) -> Tensor:
        return scored_loss(self.head(self.target, batch.tokens), self.rows, self.p(batch), batch.mask, self.config.loss)

    def draft(self, batch: Batch) -> Iterator[tuple[Tensor, int]]:
        logits = F.linear(self.head(self.target, batch.tokens), self.rows)
        for depth in range(self.depth):
            yield logits[:, depth:], depth


class _Medusa(Run):
    scores_all = True

    def build(self) -> MedusaHeads:
        if self.config.init == "random":
            return MedusaHeads.random(self.target, self.config.heads, seed=self.config.seed)
        return MedusaHeads.untrained(self.target, self.config.heads)

    def loss(self, batch: Batch) -> Tensor:
        features = [block(batch.hidden) for block in self.head.blocks]
        if self.config.loss == "tokens":
            tokens, known = batch.tokens, batch.mask
            if self.ids is not None:  # numbers of the scored tokens; what is not scored cannot be learned
                numbers = torch.full((self.target.config.vocab_size,), -1, device=tokens.device)
                numbers[self.ids] = torch.arange(len(self.ids), device=tokens.device)
                tokens, known = numbers[tokens].clamp_min(0), known & (numbers[tokens] >= 0)
            return medusa_loss(F.linear(torch.stack(features, -2), self.rows), tokens, mask=known)
        p, loss = self.p(batch), batch.hidden.new_zeros(())
        for k, x in enumerate(features, 1):
            loss = loss + 0.8**k * scored_loss(x[:, :-k], self.rows, p[:, k:], after(batch.mask, k), self.config.loss)
        return loss

    def draft(self, batch: Batch) -> Iterator[tuple[Tensor, int]]:
        for k, block in enumerate(self.head.blocks, 1):
            yield self.everything(block(batch.hidden[:, :-k])), k


class _Eagle(Run):
    version: int

    def chain(self, features: Tensor, batch: Batch, steps: int) -> Iterator[tuple[Tensor, int]]:
        for step, own in enumerate(own_features(self.head, self.target, batch.tokens, features, steps), 1):
            yield (self.everything(own) if self.scores_all else self.head.logits(self.target, own)), step

    def draft(self, batch: Batch) -> Iterator[tuple[Tensor, int]]:
        return self.chain(self.head.features(batch.hidden, batch.layers), batch, self.depth)


class _Eagle1(_Eagle):
    scores_all = True

    def build(self) -> EagleHead:
        head = EagleHead.random(self.target, 1, seed=self.config.seed)
        if self.config.init == "target":  # the last layer once more, on the feature and a little of the embedding
            copy_weights(head.body.layer, self.target.layers[-1])
            D = self.target.config.hidden_size
            head.body.join.weight.data[:, D:] = torch.eye(D)
        return head

    def loss(self, batch: Batch) -> Tensor:
        return eagle1_loss(self.head, self.target, batch.tokens, batch.hidden, mask=batch.mask, rows=self.rows)


class _Eagle3(_Eagle):
    def build(self) -> EagleHead:
        everywhere = torch.arange(self.target.config.vocab_size)
        ids = everywhere if self.ids is None else self.ids
        head = EagleHead.random(self.target, 3, ids=ids, seed=self.config.seed, own_head=self.config.own_head)
        if self.config.init == "target":
            _begin_as_last_layer(head, self.target)
        self.reads = head.config.layers
        return head.float() if self.dtype == torch.float32 else head

    def loss(self, batch: Batch) -> Tensor:
        c = self.config
        return training_time_test(
            self.head, self.target, batch.tokens, batch.layers, self.p(batch), c.ttt_steps, mask=batch.mask, kind=c.loss
        )


@torch.no_grad()
def _begin_as_last_layer(head: EagleHead, target: Transformer) -> None:
    """EAGLE-3's layer as the target's last one, on the highest of the layers that it reads; the rest stays small and random."""
    D, last, body = target.config.hidden_size, target.layers[-1], head.body
    head.fuse.weight[:, :-D] *= 0.1
    head.fuse.weight[:, -D:] = torch.eye(D)
    copied = type(last)(target.config).to(head.fuse.weight)
    copy_weights(copied, last)
    body.attention.qkv.weight[:, D:] = copied.attention.qkv.weight  # the feature's half of the pair
    if body.attention.qkv.bias is not None:
        body.attention.qkv.bias.copy_(copied.attention.qkv.bias)
    copy_weights(body.attention.out, last.attention.out)
    copy_weights(body.ffn, last.ffn)
    for own, norm in ((body.feature_norm, last.attention_norm), (body.ffn_norm, last.ffn_norm), (head.norm, target.norm)):
        own.weight.copy_(norm.weight)
    if head.config.own_head:
        head.head.weight.copy_(head_rows(target, head.ids))


RUNS: dict[str, type[Run]] = {"gpt": _Gpt, "distill": _Distill, "medusa": _Medusa, "eagle-1": _Eagle1, "eagle-3": _Eagle3}


def frequent_tokens(texts: Source, n: int, vocab_size: int) -> Tensor:
    """(n,) the most frequent ids of the texts in ascending order; on ties, and where too few occur, the lowest.

    Raises:
        ValueError: if n is not in [1, vocab_size], or the texts have an id outside the vocabulary.
    """
    if not 1 <= n <= vocab_size:
        raise ValueError(f"draft_vocab must lie in [1, {vocab_size}], got {n}")
    counts = np.bincount(np.concatenate(list(texts.texts)), minlength=vocab_size)
    if len(counts) > vocab_size:
        raise ValueError(f"the texts have the id {len(counts) - 1}, and the target's vocabulary has {vocab_size} tokens")
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:n]))


def begin(config: TrainConfig, target: Transformer, texts: Source) -> Run:
    """The run as it stands before its first step; a function of its arguments alone."""
    V = target.config.vocab_size
    ids = frequent_tokens(texts, config.draft_vocab, V).to(target.device) if config.draft_vocab else None
    return RUNS[config.method](config, target, ids)


@dataclass(frozen=True)
class Validation:
    """On held-out texts.

    loss: as in training. alpha: for each depth of a chain, how often the draft's most probable token was the target's, given that
    all before it were: greedy acceptance, behind the text itself. overlap: for each depth, the mean of Σ min(p, q) at temperature 1.
    tau: 1 + α_1 + α_1 α_2 + …, tokens per forward that a greedy chain of this depth would bring.

    A gpt drafts nothing: it has a loss, no depths, and a tau of 1.
    """

    loss: float
    alpha: tuple[float, ...]
    overlap: tuple[float, ...]
    tau: float


@torch.no_grad()
def validate(run: Run, held: Sequence[Batch]) -> Validation:
    """held: one text each, without padding."""
    run.head.eval()
    D, losses, sizes = run.depth, [], []
    reached, right, rows, shared = (np.zeros(D) for _ in range(4))
    for batch in held:
        losses.append(float(run.loss(batch)))
        sizes.append(batch.tokens.numel())
        if not D:
            continue
        p = run.everything(batch.hidden[0]).to(run.dtype).softmax(-1)  # (T, V)
        best, alive = p.argmax(-1), torch.ones(len(p), dtype=torch.bool, device=p.device)
        if not run.scores_all and run.ids is not None:
            p = p[:, run.ids]
        for depth, (logits, first) in enumerate(run.draft(batch)):
            q = logits[0].to(run.dtype).softmax(-1)  # (n, scored)
            guess = q.argmax(-1)
            guess = guess if run.scores_all or run.ids is None else run.ids[guess]
            there = slice(first, first + len(q))
            reached[depth] += int(alive[: len(q)].sum())
            alive = alive[: len(q)] & (guess == best[there])
            right[depth] += int(alive.sum())
            shared[depth] += float(torch.minimum(p[there], q).sum())
            rows[depth] += len(q)
    run.head.train()
    alpha = right / np.maximum(reached, 1)
    loss = float(np.average(losses, weights=sizes))
    return Validation(loss, tuple(alpha.tolist()), tuple((shared / rows).tolist()), float(1 + np.cumprod(alpha).sum()))
