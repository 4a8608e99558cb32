"""The shape of a decoder-only transformer: the one dataclass that the model, the cache and the loaders share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

# What Config.rope_scaling must say, and what it may say, for each way of scaling, in the words of Hugging Face's config.json.
ROPE_SCALINGS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
}
ROPE_OPTIONS = {"yarn": ("beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim")}


@dataclass(frozen=True)
class Config:
    """A Llama-style transformer: pre-norm (RMSNorm), rotary positions, grouped-query attention, SwiGLU.

    max_length: the longest context that the model was made for, in tokens.
    tied: the LM head is the embedding matrix.
    qkv_bias, out_bias: whether the attention's projections have biases (Qwen2.5: q, k, v).
    qk_norm: whether q and k are normalised head by head before the rotation (Qwen3).
    rope_scaling: how the rotary frequencies were changed for longer contexts: "rope_type", a key of ROPE_SCALINGS, and what it
        needs; None: not at all.

    Raises:
        ValueError: if a size is not a whole number >= 1, or a combination cannot be computed.
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
        for name in ("vocab_size", "hidden_size", "layers", "heads", "kv_heads", "head_dim", "ffn_size", "max_length"):
            check_size(name, getattr(self, name))
        for name in ("rope_theta", "norm_eps"):
            if not _is_positive(getattr(self, name)):
                raise ValueError(f"{name} must be a number > 0, got {getattr(self, name)!r}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, got {self.head_dim}")
        if self.rope_scaling is not None:
            _check_rope_scaling(self.rope_scaling)

    def weights(self) -> int:
        """Numbers in the matrices of a forward, the LM head's among them. The embedding is a table of which each token takes one row; where
        it is tied it counts as the LM head. Norms and biases, less than a thousandth, are left out."""
        attention = self.head_dim * (2 * self.heads + 2 * self.kv_heads)  # q and out; k and v
        return self.hidden_size * (self.layers * (attention + 3 * self.ffn_size) + self.vocab_size)

    def kv_bytes(self, length: int, batch_size: int = 1, bytes_per_number: int = 2) -> int:
        """Size of the KV cache: 2 · layers · kv_heads · head_dim numbers a token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * length * batch_size * bytes_per_number


def rope_keys(kind: str) -> tuple[str, ...]:
    """What rope_scaling can say beside its rope_type; nothing if that is unknown."""
    return ROPE_SCALINGS.get(kind, ()) + ROPE_OPTIONS.get(kind, ())


def scaled_length(length: int, scaling: dict | None, original: float | None = None) -> int:
    """The longest context of a model whose rotary frequencies were scaled. A checkpoint may name the one before the scaling or the one
    after it; the longer one is right. llama3's factor is no ratio of lengths, and its checkpoints name the scaled one.

    Args:
        length: what the checkpoint names.
        scaling: a Config's rope_scaling, which was checked.
        original: the length before the scaling, if it is known and not in `scaling`.
    """
    if scaling is None or scaling["rope_type"] == "llama3":
        return length
    return max(length, int(scaling["factor"] * scaling.get("original_max_position_embeddings", original or length)))


def _check_rope_scaling(scaling: dict) -> None:
    kind = scaling.get("rope_type")
    if kind == "dynamic":
        raise ValueError("rope_type 'dynamic' turns by the length of the text, so that every cached key would go stale as it grows")
    if kind not in ROPE_SCALINGS:
        raise ValueError(f"rope_type {kind!r} is unknown; {', '.join(ROPE_SCALINGS)} can be computed")
    for key in ROPE_SCALINGS[kind]:
        if key not in scaling:
            raise ValueError(f"rope_type {kind!r} needs {key}, got {scaling}")
    for key, value in scaling.items():
        if key not in ("rope_type", *rope_keys(kind)):
            raise ValueError(f"rope_type {kind!r} has no {key}; it has {', '.join(rope_keys(kind))}")
        if key == "truncate" and not isinstance(value, bool):
            raise ValueError(f"truncate must be true or false, got {value!r}")
        if key not in ("rope_type", "truncate") and not _is_positive(value):
            raise ValueError(f"{key} of rope_type {kind!r} must be a number > 0, got {value!r}")
    if kind == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
        raise ValueError(f"low_freq_factor must be below high_freq_factor, got {scaling}")


def check_size(name: str, value: object) -> None:
    """Raises ValueError unless the value is a whole number >= 1."""
    check_whole(name, value, 1)


def check_whole(name: str, value: object, least: int | None = None) -> None:
    """Raises ValueError unless the value is a whole number (of Python or numpy), and at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or (least is not None and value < least):
        raise ValueError(f"{name} must be a whole number{'' if least is None else f' >= {least}'}, got {value!r}")


def is_number(value: object) -> bool:
    """Whether it is a real number (of Python or numpy); a NaN is one, True is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_positive(value: object) -> bool:
    return is_number(value) and 0 < value < math.inf
