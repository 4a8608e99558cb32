"""DistilledDraft: a few layers between the target's embedding and its LM head, trained to say what the target says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec.config import Config, check_size
from specdec.drafters.heads import DraftHead, check_made_for, randomise
from specdec.drafters.shared_head import check_ids, head_rows, plain_weight
from specdec.models.linear import Linear, pack_linears
from specdec.models.norm import RMSNorm
from specdec.models.traced import Traces
from specdec.models.transformer import Layer, Transformer


@dataclass(frozen=True)
class DistilledConfig:
    """The shape of a distilled draft.

    target: of the model it drafts for; the draft's own layers have that shape too.
    layers: how many they are.
    draft_vocab: how many tokens it scores; all of them if None.

    Raises:
        ValueError: if a number is out of range.
    """

    target: Config
    layers: int = 2
    draft_vocab: int | None = None
    version = 1

    def __post_init__(self) -> None:
        check_size("layers", self.layers)
        V = self.target.vocab_size
        if self.draft_vocab is not None and not 1 <= self.draft_vocab <= V:
            raise ValueError(f"draft_vocab must lie in [1, {V}], got {self.draft_vocab}")

    def check(self, target: Transformer) -> None:
        """Raises ValueError if the target differs in what the draft shares with it."""
        names = ("vocab_size", "hidden_size", "head_dim", "rope_theta", "rope_scaling")
        check_made_for({name: getattr(self.target, name) for name in names}, target)

    @classmethod
    def from_dict(cls, fields: dict) -> DistilledConfig:
        return cls(**fields | {"target": Config(**fields["target"])})


class DistilledDraft(DraftHead):
    """Layers and a last norm of its own. Embedding, rotary tables and LM head are the target's: shared, frozen and not stored.

    With a reduced vocabulary it scores the tokens `ids` alone, and a product with a part of the LM head is all that it costs. All
    others have q = 0. That is exact: q is what the draft's tokens are drawn from, and what p has beyond it comes with the residual.

    `draft.beside(target)` is a model for `DraftModel`.

    Args:
        ids: (draft_vocab,) int64; 0 … draft_vocab - 1 if None.

    Raises:
        ValueError: if ids are given and the config has no draft_vocab, or they repeat or lie outside the vocabulary.
    """

    kind, config_class = "distilled", DistilledConfig
    packs = False  # `beside` does that

    def __init__(self, config: DistilledConfig, ids: Tensor | Sequence[int] | None = None):
        super().__init__(config)
        self.layers = nn.ModuleList(Layer(config.target) for _ in range(config.layers))
        self.norm = RMSNorm(config.target.hidden_size, config.target.norm_eps)
        n = config.draft_vocab
        if n is None and ids is not None:
            raise ValueError("ids are given, and the config's draft_vocab is None: the whole vocabulary is scored")
        if n is not None:
            self.register_buffer("ids", torch.arange(n) if ids is None else torch.as_tensor(ids).long().clone())
        if ids is not None:
            check_ids(self.ids, n, config.target.vocab_size)

    @classmethod
    def random(
        cls, target: Transformer, layers: int = 2, ids: Sequence[int] | Tensor | None = None, seed: int = 0, scale: float = 1.0
    ) -> DistilledDraft:
        """A draft that knows nothing, to test or to train; in the dtype of the target's activations and on its device."""
        made = cls(DistilledConfig(target.config, layers, None if ids is None else len(ids)), ids)
        randomise(made, seed, scale)
        made.norm.weight.data.copy_(target.norm.weight)
        return made.to(target.device, target.dtype).eval()

    @classmethod
    def copied(cls, target: Transformer, layers: Sequence[int], ids: Sequence[int] | Tensor | None = None) -> DistilledDraft:
        """A draft that begins as copies of these layers of the target, numbered from 0.

        Raises:
            ValueError: if a number is not that of a layer.
        """
        n = target.config.layers
        if not all(0 <= layer < n for layer in layers):
            raise ValueError(f"layers must be numbers in [0, {n}), got {tuple(layers)}")
        made = cls.random(target, len(layers), ids)
        for own, layer in zip(made.layers, layers, strict=True):
            copy_weights(own, target.layers[layer])
        return made

    def check_state(self) -> None:
        """Raises ValueError if a weight is not finite or `ids` is no part of the vocabulary."""
        if self.config.draft_vocab is not None:
            check_ids(self.ids, self.config.draft_vocab, self.config.target.vocab_size)
        super().check_state()

    def forward(self, target: Transformer, tokens: Tensor) -> Tensor:
        """Whole texts (B, T) → (B, T, D), what the LM head reads. Without a cache, so that a gradient can pass."""
        weight = self.norm.weight
        x = target.embedding(tokens).to(weight.dtype)
        rope = tuple(table[: tokens.shape[1]].to(weight.dtype).unsqueeze(-3) for table in (target.cos, target.sin))
        for index, layer in enumerate(self.layers):
            x = layer(x, rope, index, Whole())
        return self.norm(x)

    def beside(self, target: Transformer) -> Transformer:
        """The draft as a model of its own that shares the target's tensors. Where the target's weights are packed, so are copies of
        the draft's.

        Raises:
            ValueError: if the draft was made for another target, or has another device or dtype than the target's activations.
        """
        self.check(target)
        with torch.device("meta"):
            model = Transformer(replace(self.config.target, layers=self.config.layers), target.tokenizer)
            packed = nn.ModuleList(Layer(self.config.target) for _ in self.layers) if target.head.weight is None else None
        model.embedding, model.norm, model.head = target.embedding, self.norm, target.head
        model.cos, model.sin, model.traces = target.cos, target.sin, None if target.traces is None else Traces()
        model.layers = self.layers
        if packed is not None:
            packed.load_state_dict(
                self.layers.state_dict(), assign=True
            )  # tensors of their own modules: packing takes them away
            pack_linears(packed)
            model.layers = packed
        if self.config.draft_vocab is not None:
            model.head = PartialHead(target, self.ids)
        return model.eval()


class PartialHead(nn.Module):
    """The target's LM head over the tokens ids (n,) alone: (..., D) → (..., V), -inf elsewhere."""

    def __init__(self, target: Transformer, ids: Tensor):
        super().__init__()
        self.vocab_size, self.ids = target.config.vocab_size, ids
        with torch.device("meta"):
            self.rows = Linear(target.config.hidden_size, len(ids))
        self.rows.weight = nn.Parameter(head_rows(target, ids).to(target.dtype), requires_grad=False)
        if target.head.weight is None:
            self.rows.pack()

    def forward(self, x: Tensor) -> Tensor:
        logits = self.rows(x)
        everywhere = logits.new_full((*logits.shape[:-1], self.vocab_size), -torch.inf)
        return everywhere.index_copy_(-1, self.ids, logits)


class Whole:
    """A view (`specdec.models.attention`) without a cache: causal, over whole texts."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@torch.no_grad()
def copy_weights(own: nn.Module, source: nn.Module) -> None:
    """The weights of a module of the target into one of the same shape, packed or not."""
    pairs = [(a, b) for a, b in zip(own.modules(), source.modules(), strict=True) if isinstance(a, Linear | RMSNorm)]
    for a, b in pairs:
        a.weight.copy_(plain_weight(b) if isinstance(b, Linear) else b.weight)
        if getattr(a, "bias", None) is not None:
            bias = b.bias if b.weight is not None else torch.ops.quantized.linear_unpack_fp16(b._packed)[1]
            a.bias.copy_(bias)
