"""The shape of a decoder-only transformer: the one dataclass that the model, the cache and the loaders share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """A Llama-style transformer: pre-norm (RMSNorm), rotary positions, grouped-query attention, SwiGLU.

    max_length: the longest context that the model was made for, in tokens.
    tied: the LM head is the embedding matrix.
    qkv_bias, out_bias: whether the attention's projections have biases (Qwen2.5: q, k, v).
    qk_norm: whether q and k are normalised head by head before the rotation (Qwen3).
    rope_scaling: how the rotary frequencies were changed for longer contexts; None: not at all.
    """

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_size: int
    max_length: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    rope_scaling: dict | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, got {self.head_dim}")

    def kv_bytes(self, length: int, batch_size: int = 1, bytes_per_number: int = 2) -> int:
        """Size of the KV cache: 2 · layers · kv_heads · head_dim numbers a token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * length * batch_size * bytes_per_number
