"""One decoder-only transformer. It scores any number of new tokens, chain or tree, in one forward over a KVCache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec.cache import KVCache
from specdec.config import Config, check_whole
from specdec.models.attention import CacheView, View, view
from specdec.models.linear import Linear
from specdec.models.norm import RMSNorm
from specdec.models.traced import Traces


@dataclass(frozen=True)
class Output:
    """logits: (B, R, V), R the rows that were asked for. hidden: (B, T, D), after the last norm: what the LM head reads.

    layers: (B, T, n D), the residual stream behind each of the n layers that were asked for, side by side; None if none were.
    """

    logits: Tensor
    hidden: Tensor
    layers: Tensor | None = None


class Attention(nn.Module):
    def __init__(self, config: Config, inputs: int | None = None):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        width = (config.heads + 2 * config.kv_heads) * config.head_dim
        self.qkv = Linear(inputs or config.hidden_size, width, config.qkv_bias)
        self.out = Linear(config.heads * config.head_dim, config.hidden_size, config.out_bias)
        if config.qk_norm:
            self.q_norm, self.k_norm = (RMSNorm(config.head_dim, config.norm_eps) for _ in range(2))
        self.qk_norm = config.qk_norm

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], layer: int, view: View) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, heads + 2 kv_heads, T, head_dim)
        qk, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=1)
        if self.qk_norm:
            qk = torch.cat([self.q_norm(qk[:, : self.heads]), self.k_norm(qk[:, self.heads :])], dim=1)
        q, k = rotate(qk, *rope).split([self.heads, self.kv_heads], dim=1)
        return self.out(view.attend(layer, q, k, v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.gate_up = Linear(config.hidden_size, 2 * config.ffn_size)
        self.down = Linear(config.ffn_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.ffn = FeedForward(config)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], layer: int, view: View) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rope, layer, view)
        return x + self.ffn(self.ffn_norm(x))


class Transformer(nn.Module):
    """The model. `model(tokens, cache)` appends the tokens to the cache and scores what may follow each of them.

    Args:
        config: the shape.
        tokenizer: `.encode(text) → ids` and `.decode(ids)`; None for models that only ever see ids.
    """

    def __init__(self, config: Config, tokenizer=None):
        super().__init__()
        self.config, self.tokenizer = config, tokenizer
        self.traces: Traces | None = None  # `load_model` sets them; small models for tests are quicker without
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.head = Linear(config.hidden_size, config.vocab_size)
        if config.tied:
            self.head.weight = self.embedding.weight
        self.set_rope()

    def set_rope(self) -> None:
        """Computes the rotary tables, in float64 first; they are no part of a checkpoint."""
        positions = torch.arange(self.config.max_length, dtype=torch.float64)
        angles, factor = torch.outer(positions, rope_frequencies(self.config)), rope_attention_factor(self.config)
        # (max_length, head_dim) each, as `rotate` takes them
        self.register_buffer("cos", (angles.cos() * factor).float().repeat(1, 2), persistent=False)
        self.register_buffer("sin", (torch.cat([-angles.sin(), angles.sin()], dim=-1) * factor).float(), persistent=False)

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of activations, cache and logits. The weights' own, or float32 where packed 16-bit weights are summed in it."""
        return self.norm.weight.dtype

    def new_cache(self, max_length: int | None = None, batch_size: int = 1) -> KVCache:
        """An empty cache that fits this model: its device and dtype, and its longest context by default."""
        return KVCache(self.config, batch_size, self.config.max_length if max_length is None else max_length, self.device, self.dtype)

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        rows: int | None = None,
        layers: Sequence[int] = (),
        fixed: bool = False,
    ) -> Output:
        """Appends T tokens to every row of the cache and scores them.

        Args:
            tokens: (B, T) int64 ids.
            cache: row b is filled with the L_b tokens that come before; afterwards it holds L_b + T.
            positions: (T,) or (B, T) rotary positions; L_b … L_b + T - 1 if None.
            mask: (T, M) or (B, T, M) bool with M >= T, True where a new token may see one of the last M slots, the new tokens' own
                included; every slot before those is seen. Causal if None.
            rows: logits for the last `rows` tokens only, 0 for none; a prompt needs those of its end, and the head is the largest product.
            layers: whose outputs to return beside the last one's, counted from 0.
            fixed: run in a shape that depends on T alone, so that a token's logits are the same bits in every forward of T tokens
                over this cache (models/attention.py, `Fixed`). One row only.

        Raises:
            CacheFull: if T slots are not free.
            ValueError: on an empty or ill-shaped input, a cache of another model, or a text beyond config.max_length. Both before
                anything is written. Values are not looked at, for that would make an accelerator wait: an id outside the vocabulary,
                or a given position outside the context, is for the caller to prevent.
        """
        self._check(tokens, cache, positions, rows, layers)
        T, L = tokens.shape[1], cache.length
        if positions is None and self.config.max_length < L + T and not fixed:
            raise ValueError(f"{L} cached + {T} new tokens exceed the model's context of {self.config.max_length}")
        rope = self._rope(positions, cache, T, fixed)
        x, *outputs = self._stack(self.embedding(tokens).to(self.dtype), rope, view(cache, T, mask, fixed), tuple(layers))
        x = self.norm(x)
        inner = torch.cat(outputs, dim=-1) if layers else None
        scored = x if rows is None else x[:, T - rows :]
        logits = self.head(scored) if rows != 0 else x.new_empty(len(x), 0, self.config.vocab_size)
        return Output(logits, x, inner)

    def _stack(self, x: Tensor, rope: tuple[Tensor, Tensor], seen: CacheView, kept: tuple[int, ...]) -> list[Tensor]:
        """x (B, T, D) behind the last layer, and behind each of the layers `kept`."""
        if self.traces is not None and self.traces.pay(x, seen):
            return self.traces.run(self, (x, *rope), seen, kept)
        return self.through(x, *rope, seen, kept)

    def through(self, x: Tensor, cos: Tensor, sin: Tensor, seen: View, kept: tuple[int, ...]) -> list[Tensor]:
        """`_stack`, as Python runs it."""
        outputs = {}
        for index, layer in enumerate(self.layers):
            x = layer(x, (cos, sin), index, seen)
            if index in kept:
                outputs[index] = x
        return [x, *(outputs[index] for index in kept)]

    def _check(self, tokens: Tensor, cache: KVCache, positions: Tensor | None, rows: int | None, layers: Sequence[int]) -> None:
        """Raises ValueError at the first argument of forward that does not fit; looks at shapes only."""
        c, B, (n, _, heads, _, dim) = self.config, cache.batch_size, cache.keys.shape
        if (n, heads, dim, cache.keys.dtype) != (c.layers, c.kv_heads, c.head_dim, self.dtype):
            raise ValueError(
                f"the cache is of {n} layers, {heads} heads of {dim} and {cache.keys.dtype}; "
                f"the model has {c.layers} layers, {c.kv_heads} heads of {c.head_dim} and {self.dtype}"
            )
        if tokens.dim() != 2 or tokens.shape[1] == 0 or len(tokens) != B or tokens.is_floating_point():
            raise ValueError(f"tokens must be ({B}, T) with T >= 1, whole numbers, got {tuple(tokens.shape)} of {tokens.dtype}")
        T = tokens.shape[1]
        if positions is not None and positions.shape not in ((T,), (B, T)):
            raise ValueError(f"positions must be ({T},) or ({B}, {T}), got {tuple(positions.shape)}")
        if rows is not None and not 0 <= rows <= T:
            raise ValueError(f"rows must lie in [0, {T}], got {rows}")
        if not all(0 <= layer < n for layer in layers):
            raise ValueError(f"layers must be numbers in [0, {n}), got {tuple(layers)}")

    def _rope(self, positions: Tensor | None, cache: KVCache, T: int, fixed: bool) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (1, T, head_dim) or (B, 1, T, head_dim)."""
        if positions is None and not fixed and not cache.is_ragged:
            where = slice(cache.length, cache.length + T)
        elif positions is None:
            where = cache.starts[:, None] + torch.arange(T, device=self.device)
            where = where.clamp_max(self.config.max_length - 1)  # what pads a fixed shape may stand beyond the context
        else:
            where = positions
        return tuple(table[where].to(self.dtype).unsqueeze(-3) for table in (self.cos, self.sin))

    def truncated(self, layers: int) -> Transformer:
        """A model of the first `layers` layers with the same embedding, norm and head, sharing all weights: the simplest draft.

        Raises:
            ValueError: if layers is no whole number in [1, config.layers].
        """
        check_whole("layers", layers)
        if not 1 <= layers <= self.config.layers:
            raise ValueError(f"layers must lie in [1, {self.config.layers}], got {layers}")
        with torch.device("meta"):
            short = Transformer(replace(self.config, layers=layers), self.tokenizer)
        short.embedding, short.norm, short.head = self.embedding, self.norm, self.head
        short.layers = nn.ModuleList(list(self.layers)[:layers])
        short.cos, short.sin, short.traces = self.cos, self.sin, None if self.traces is None else Traces()
        return short


def check_model(role: str, model: object) -> None:
    """Raises ValueError if it is no model: a name or a directory in place of one, or the model of another library."""
    lacks = [name for name in ("config", "device", "dtype", "tokenizer", "new_cache") if not hasattr(model, name)]
    if lacks:
        raise ValueError(f"the {role} must be a model, such as load_model returns, got {model!r:.80} without {', '.join(lacks)}")


def rope_frequencies(config: Config) -> Tensor:
    """(head_dim / 2,) float64 radians a position (Su et al. 2104.09864, section 3.4.2), scaled as config.rope_scaling says.

    To scale is to divide by `factor`; the kinds differ in how much of which frequency they keep. linear keeps nothing (Chen et al.
    2306.15595). llama3 keeps what turns often within the original context (Llama 3.1's published code). yarn does so along the
    dimensions ("NTK-by-parts" in Peng et al. 2309.00071).
    """
    frequencies = config.rope_theta ** -(torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling["rope_type"] == "linear":
        return frequencies / scaling["factor"]
    kept = _kept_by_llama3(scaling, frequencies) if scaling["rope_type"] == "llama3" else _kept_by_yarn(scaling, config)
    return frequencies * kept + frequencies / scaling["factor"] * (1 - kept)


def _kept_by_llama3(scaling: dict, frequencies: Tensor) -> Tensor:
    """(head_dim / 2,) in [0, 1]: rises with the number of turns from low_freq_factor to high_freq_factor."""
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    return ((turns - low) / (high - low)).clamp(0, 1)


def _kept_by_yarn(scaling: dict, config: Config) -> Tensor:
    """(head_dim / 2,) in [0, 1]: falls from the dimension that makes beta_fast turns to the one that makes beta_slow."""

    def dimension(turns: float) -> float:
        length = scaling["original_max_position_embeddings"] / (2 * math.pi * turns)
        return config.head_dim * math.log(length) / (2 * math.log(config.rope_theta))

    low, high = dimension(scaling.get("beta_fast", 32)), dimension(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.head_dim - 1)
    along = torch.arange(config.head_dim // 2, dtype=torch.float64)
    return 1 - ((along - low) / ((high - low) or 0.001)).clamp(0, 1)


def rope_attention_factor(config: Config) -> float:
    """What cosines and sines are multiplied by: 1, but for yarn, which sharpens attention with it (Peng et al. 2309.00071, "YaRN")."""
    scaling = config.rope_scaling
    if scaling is None or scaling["rope_type"] != "yarn":
        return 1.0
    if "attention_factor" in scaling:
        return float(scaling["attention_factor"])

    def sharpness(weight: float) -> float:
        return 0.1 * weight * math.log(scaling["factor"]) + 1 if scaling["factor"] > 1 else 1.0

    if "mscale" in scaling and "mscale_all_dim" in scaling:
        return sharpness(scaling["mscale"]) / sharpness(scaling["mscale_all_dim"])
    return sharpness(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions in the half-split form (Su et al. 2104.09864, section 3.4.2). x (B, H, T, head_dim).

    Number i of the first half makes a pair with number i of the second: (a cos - b sin, b cos + a sin). The table `sin` holds -sin in
    its first half, so that the other of each pair stands in its place once x has been turned by half its length.
    """
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def random_model(config: Config, seed: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Transformer:
    """A randomly initialised model for tests. A larger `scale` sharpens its distributions; they depend on the context."""
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.normal_(0, scale * parameter.shape[-1] ** -0.5, generator=generator)
    return model.to(dtype).eval().requires_grad_(False)
