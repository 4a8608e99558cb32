"""EagleHead: one decoder layer that continues the target's features (EAGLE-1, Li et al. 2401.15077; EAGLE-3, 2503.01840).

Pair t is the feature of position t together with token t + 1; what the layer makes of it stands for the feature of position t + 1,
and predicts token t + 2. Everywhere pair t has the rotary position t. In a cache of committed pairs it lies in slot t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from specdec.cache import KVCache
from specdec.config import Config
from specdec.drafters.heads import DraftHead, check_made_for, randomise
from specdec.drafters.shared_head import SharedRows, check_ids
from specdec.models.attention import View
from specdec.models.linear import Linear
from specdec.models.norm import RMSNorm
from specdec.models.traced import Traces
from specdec.models.transformer import Attention, FeedForward, Layer, Transformer


@dataclass(frozen=True)
class EagleConfig:
    """The shape of an EAGLE head.

    version: 1 (EAGLE-2 has the same head) or 3.
    target: of the model it drafts for; the head's own layer has that shape too.
    layers: version 3: the layers of the target whose outputs it reads, from 0, from low to high. Version 1 reads `Output.hidden`.
    draft_vocab: version 3: how many tokens it scores. Version 1 scores all of them, with the target's LM head.
    own_head: version 3: whether its LM head is its own, or the target's rows of the tokens it scores: frozen, and not stored.

    Raises:
        ValueError: if a version has what it should not have or lacks what it needs, or a number is out of range.
    """

    version: int
    target: Config
    layers: tuple[int, ...] = ()
    draft_vocab: int | None = None
    own_head: bool = True

    def __post_init__(self) -> None:
        if self.version not in (1, 3):
            raise ValueError(f"version must be 1 or 3 (EAGLE-2 has the head of version 1), got {self.version}")
        if self.version == 1 and (self.layers or self.draft_vocab is not None):
            raise ValueError(f"version 1 takes no layers and no draft_vocab, got {self.layers} and {self.draft_vocab}")
        if self.version == 1 and not self.own_head:
            raise ValueError("own_head = False is for version 3; version 1 always scores with the target's LM head")
        if self.version == 3:
            n, V = self.target.layers, self.target.vocab_size
            if not self.layers or not all(0 <= layer < n for layer in self.layers):
                raise ValueError(f"layers must be at least one number in [0, {n}), got {self.layers}")
            if self.draft_vocab is None or not 1 <= self.draft_vocab <= V:
                raise ValueError(f"draft_vocab must lie in [1, {V}], got {self.draft_vocab}")

    @property
    def scored(self) -> int:
        """How many tokens the head scores."""
        return self.draft_vocab or self.target.vocab_size

    def check(self, target: Transformer) -> None:
        """Raises ValueError if the target differs in what the head shares with it, or lacks a layer that the head reads."""
        names = ("vocab_size", "hidden_size", "head_dim", "rope_theta", "rope_scaling")
        check_made_for({name: getattr(self.target, name) for name in names}, target)
        if self.layers and max(self.layers) >= target.config.layers:
            raise ValueError(f"the head reads the target's layers {self.layers}, this one has {target.config.layers}")

    @classmethod
    def from_dict(cls, fields: dict) -> EagleConfig:
        return cls(**fields | {"target": Config(**fields["target"]), "layers": tuple(fields["layers"])})


class JoinedLayer(nn.Module):
    """EAGLE-1: embedding and feature, side by side, are mapped onto the input of an ordinary layer (2401.15077, section 3.1)."""

    def __init__(self, config: Config):
        super().__init__()
        self.join = Linear(2 * config.hidden_size, config.hidden_size, bias=True)
        self.layer = Layer(config)

    def through(self, embedding: Tensor, feature: Tensor, cos: Tensor, sin: Tensor, view: View) -> list[Tensor]:
        return [self.layer(self.join(torch.cat([embedding, feature], dim=-1)), (cos, sin), 0, view)]


class PairedLayer(nn.Module):
    """EAGLE-3: the attention reads embedding and feature, each normalised; the feature is the residual (2503.01840, section 3.1)."""

    def __init__(self, config: Config):
        super().__init__()
        D = config.hidden_size
        self.embedding_norm, self.feature_norm, self.ffn_norm = (RMSNorm(D, config.norm_eps) for _ in range(3))
        self.attention = Attention(config, inputs=2 * D)
        self.ffn = FeedForward(config)

    def through(self, embedding: Tensor, feature: Tensor, cos: Tensor, sin: Tensor, view: View) -> list[Tensor]:
        pair = torch.cat([self.embedding_norm(embedding), self.feature_norm(feature)], dim=-1)
        x = feature + self.attention(pair, (cos, sin), 0, view)
        return [x + self.ffn(self.ffn_norm(x))]


class EagleHead(DraftHead):
    """The drafting layer, with what stands before and behind it. The token embedding is the target's, frozen and not stored.

    Version 1: the feature is the target's `Output.hidden`, and the target's LM head scores the layer's output.
    Version 3: the feature is a linear map of several inner layers' outputs, and an LM head of its own scores a part of the vocabulary;
    or the target's LM head does (own_head = False), once `share` has named the target. `random` and `load` do that.
    In both the layer's output takes the place of the feature where the target's is not known yet.

    Args:
        ids: version 3: (draft_vocab,) int64, the target's id of each scored token; 0 … draft_vocab - 1 if None.

    Raises:
        ValueError: if ids are given to version 1, have another shape, repeat, or lie outside the vocabulary.
    """

    kind, config_class = "eagle", EagleConfig

    def __init__(self, config: EagleConfig, ids: Tensor | Sequence[int] | None = None):
        super().__init__(config)
        D, one = config.target.hidden_size, replace(config.target, layers=1)
        self.traces = Traces()
        if config.version == 1:
            if ids is not None:
                raise ValueError("version 1 scores the whole vocabulary and takes no ids")
            self.body = JoinedLayer(one)
            return
        self.fuse = Linear(len(config.layers) * D, D)
        self.body = PairedLayer(one)
        self.norm = RMSNorm(D, config.target.norm_eps)
        self.head = Linear(D, config.scored) if config.own_head else SharedRows(config.scored, D)
        self.register_buffer("ids", torch.arange(config.scored) if ids is None else torch.as_tensor(ids).long().clone())
        if ids is not None:
            self.check_ids()

    @classmethod
    def random(
        cls, target: Transformer, version: int = 3, layers: Sequence[int] | None = None, ids: Sequence[int] | Tensor | None = None,
        seed: int = 0, scale: float = 1.0, own_head: bool = True,
    ) -> EagleHead:  # fmt: skip
        """A head that knows nothing, to test or to train; in the target's dtype and on its device.

        layers, ids: version 3 only; `fused_layers` and the whole vocabulary by default.
        """
        if version == 3:
            layers = fused_layers(target.config.layers) if layers is None else layers
            scored = target.config.vocab_size if ids is None else len(ids)
            config = EagleConfig(3, target.config, tuple(layers), scored, own_head)
        else:
            config = EagleConfig(version, target.config, tuple(layers or ()), own_head=own_head)
        head = cls(config, ids)
        randomise(head, seed, scale)
        return head.share(target).to(target.device, target.dtype).eval()

    @classmethod
    def _from_file(cls, about: dict[str, str], state: dict[str, Tensor], target: Transformer) -> EagleHead:
        return super()._from_file(about, state, target).share(target)

    def share(self, target: Transformer) -> EagleHead:
        """Takes from the target what the head has in common with it and does not store: the rows of the LM head, if they are."""
        if not self.config.own_head:
            self.head.share(target, self.ids)
        return self

    def check_state(self) -> None:
        """Raises ValueError if a stored weight is not finite or `ids` is no part of the vocabulary."""
        super().check_state()
        if self.config.version == 3:
            self.check_ids()

    def check_ids(self) -> None:
        """Raises ValueError if `ids` is not draft_vocab different ids of the target."""
        check_ids(self.ids, self.config.scored, self.config.target.vocab_size)

    def new_cache(self, max_length: int) -> KVCache:
        """An empty cache of one row and one layer, for `max_length` pairs."""
        weight = next(self.parameters())
        return KVCache(replace(self.config.target, layers=1), 1, max_length, weight.device, weight.dtype)

    def features(self, hidden: Tensor, layers: Tensor | None) -> Tensor:
        """What the target computed, (..., D) and (..., n D), → the features that the head reads, (..., D)."""
        return hidden if self.config.version == 1 else self.fuse(layers)

    def forward(self, target: Transformer, tokens: Tensor, features: Tensor, view: View, positions: slice | Tensor) -> Tensor:
        """One step of the layer over T pairs.

        Args:
            tokens: (B, T) int64, the token that follows each feature.
            features: (B, T, D), the target's (`features`) or the head's own of the step before.
            view: whom the pairs see (`specdec.models.attention.view`), and where keys and values go.
            positions: of the pairs: T numbers, or one for all of them.

        Returns:
            (B, T, D): the head's own features, one position further.
        """
        embedding = target.embedding(tokens).to(features.dtype)
        rope = tuple(table[positions].to(features.dtype).unsqueeze(-3) for table in (target.cos, target.sin))
        if target.traces is not None and self.traces.pay(features, view):
            return self.traces.run(self.body, (embedding, features, *rope), view)[0]
        return self.body.through(embedding, features, *rope, view)[0]

    def logits(self, target: Transformer, features: Tensor) -> Tensor:
        """The head's own features (..., D) → (..., scored): what it thinks of the tokens it scores."""
        return target.head(features) if self.config.version == 1 else self.head(self.norm(features))

    def target_ids(self, scored: Tensor) -> Tensor:
        """Numbers of scored tokens → the target's ids."""
        return scored if self.config.version == 1 else self.ids[scored]

    def spread(self, logits: Tensor) -> Tensor:
        """(..., scored) → (..., V); tokens that are not scored get -inf."""
        if self.config.version == 1:
            return logits
        everywhere = logits.new_full((*logits.shape[:-1], self.config.target.vocab_size), -torch.inf)
        return everywhere.index_copy(-1, self.ids, logits)


def fused_layers(layers: int) -> tuple[int, int, int]:
    """A low, a middle and a high layer of a target of so many: those of the published heads, (1, n / 2 - 1, n - 4), as far as there are."""
    low, middle, high = sorted(min(max(layer, 0), layers - 1) for layer in (1, layers // 2 - 1, layers - 4))
    return low, middle, high
