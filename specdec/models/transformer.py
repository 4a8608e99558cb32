"""One decoder-only transformer. It scores any number of new tokens, chain or tree, in one forward over a KVCache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec.cache import KVCache
from specdec.config import Config
from specdec.models.linear import Linear


@dataclass(frozen=True)
class Output:
    """logits: (B, R, V), R the rows that were asked for. hidden: (B, T, D), after the last norm: what the LM head reads."""

    logits: Tensor
    hidden: Tensor


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.qkv = Linear(config.hidden_size, (config.heads + 2 * config.kv_heads) * config.head_dim)
        self.out = Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], cache: KVCache, layer: int, mask: Mask) -> Tensor:
        B, T, _ = x.shape
        qkv = self.qkv(x).view(B, T, -1, self.head_dim).transpose(1, 2)  # (B, heads + 2 kv_heads, T, head_dim)
        qk, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=1)
        q, k = rotate(qk, *rope).split([self.heads, self.kv_heads], dim=1)
        k, v = cache.append(layer, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.dense, is_causal=mask.causal, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(B, T, -1))


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
        self.attention_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.ffn = FeedForward(config)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], cache: KVCache, layer: int, mask: Mask) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rope, cache, layer, mask)
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
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.head = Linear(config.hidden_size, config.vocab_size)
        if config.tied:
            self.head.weight = self.embedding.weight
        self.set_rope()

    def set_rope(self) -> None:
        """Computes the rotary tables, in float64 first; they are no part of a checkpoint."""
        half = torch.arange(0, self.config.head_dim, 2, dtype=torch.float64) / self.config.head_dim
        angles = torch.outer(torch.arange(self.config.max_length, dtype=torch.float64), self.config.rope_theta**-half)
        self.register_buffer("cos", angles.cos().float(), persistent=False)  # (max_length, head_dim / 2)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of activations, cache and logits. The weights' own, or float32 where packed 16-bit weights are summed in it."""
        return self.norm.weight.dtype

    def new_cache(self, max_length: int | None = None, batch_size: int = 1) -> KVCache:
        """An empty cache that fits this model: its device and dtype, and its longest context by default."""
        return KVCache(self.config, batch_size, max_length or self.config.max_length, self.device, self.dtype)

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        rows: int | None = None,
    ) -> Output:
        """Appends T tokens to the cache and scores them.

        Args:
            tokens: (B, T) int64 ids.
            cache: filled with the L tokens that come before; afterwards it holds L + T.
            positions: (T,) or (B, T) rotary positions; L … L + T - 1 if None.
            mask: (T, T) bool among the new tokens, True where row i may look at column j; causal if None. Every new token sees
                all L cached ones.
            rows: logits for the last `rows` tokens only; a prompt needs those of its end, and the head is the largest product.

        Raises:
            CacheFull: if T slots are not free, before anything is written.
            ValueError: on an empty or ill-shaped input, or a position beyond config.max_length.
        """
        if tokens.dim() != 2 or tokens.shape[1] == 0:
            raise ValueError(f"tokens must be (B, T) with T >= 1, got {tuple(tokens.shape)}")
        T, L = tokens.shape[1], cache.length
        cache.require(T)
        if positions is None:
            if self.config.max_length < L + T:
                raise ValueError(f"{L} cached + {T} new tokens exceed the model's context of {self.config.max_length}")
            rope = self.cos[L : L + T], self.sin[L : L + T]
        else:
            rope = self.cos[positions], self.sin[positions]
        rope = tuple(part.to(self.dtype).unsqueeze(-3) for part in rope)  # (1, T, ·) or (B, 1, T, ·)
        attention_mask = Mask.build(T, L, mask, self.device)
        x = self.embedding(tokens).to(self.dtype)
        for index, layer in enumerate(self.layers):
            x = layer(x, rope, cache, index, attention_mask)
        x = self.norm(x)
        return Output(self.head(x if rows is None else x[:, -rows:]), x)

    def truncated(self, layers: int) -> Transformer:
        """A model of the first `layers` layers with the same embedding, norm and head, sharing all weights: the simplest draft.

        Raises:
            ValueError: if layers does not lie in [1, config.layers].
        """
        if not 1 <= layers <= self.config.layers:
            raise ValueError(f"layers must lie in [1, {self.config.layers}], got {layers}")
        with torch.device("meta"):
            short = Transformer(replace(self.config, layers=layers), self.tokenizer)
        short.embedding, short.norm, short.head = self.embedding, self.norm, self.head
        short.layers = nn.ModuleList(list(self.layers)[:layers])
        short.cos, short.sin = self.cos, self.sin
        return short


@dataclass(frozen=True)
class Mask:
    """Who sees whom, in the cheapest form that attention takes: nothing for one token, a flag for a plain prompt, else a matrix."""

    dense: Tensor | None
    causal: bool

    @classmethod
    def build(cls, T: int, L: int, among_new: Tensor | None, device: torch.device) -> Mask:
        if among_new is None:
            if T == 1 or L == 0:
                return cls(None, causal=T > 1)
            among_new = torch.ones(T, T, dtype=torch.bool, device=device).tril()
        elif among_new.shape != (T, T):
            raise ValueError(f"mask must be {(T, T)}, got {tuple(among_new.shape)}")
        seen = torch.ones(T, L, dtype=torch.bool, device=device)
        return cls(torch.cat([seen, among_new.to(device)], dim=1), causal=False)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions in the half-split form (Su et al. 2104.09864, section 3.4.2). x (B, H, T, head_dim)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def random_model(config: Config, seed: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Transformer:
    """A randomly initialised model for tests. A larger `scale` sharpens its distributions; they depend on the context."""
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.normal_(0, scale * parameter.shape[-1] ** -0.5, generator=generator)
    return model.to(dtype).eval().requires_grad_(False)
