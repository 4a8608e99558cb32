"""Reading a Llama-architecture GGUF file: the container and the dequantisation are the gguf package's, the names ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor

from specdec.config import Config, check_size, scaled_length
from specdec.models.errors import CheckpointError
from specdec.models.tokenizer import Tokenizer, from_gguf_fields
from specdec.progress import progress

ENDS = ("eos", "eot", "eom")  # tokens that end a text, a turn, a message: a generation stops at each of them
# Keys of the architecture that are not computed, and the values at which they change nothing.
HARMLESS = {
    "logit_scale": (0, 1),
    "embedding_scale": (0, 1),
    "residual_scale": (0, 1),
    "attention.scale": (0,),
    "attention.causal": (True,),
    "attention.max_alibi_bias": (0,),
    "attention.clamp_kqv": (0,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "use_parallel_residual": (False,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "tensor_data_layout": ("Meta AI original pth", "reference"),
    "rope.scaling.finetuned": (False, True),
    "rope.scaling.attn_factor": (1,),
    "rope.scaling.yarn_attn_factor": (1,),
    "rope.scaling.yarn_ext_factor": (-1, 1),
    "rope.scaling.yarn_log_multiplier": (0,),
}


def read_gguf(path: Path, dtype: torch.dtype) -> tuple[Config, Tokenizer, dict[str, Tensor]]:
    """Configuration, tokenizer and dequantised weights of a Llama-architecture GGUF file."""
    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, IndexError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable GGUF file: {error}") from error
    fields = {name: field.contents() for name, field in reader.fields.items()}
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise CheckpointError(f"{path} holds a model of architecture {architecture!r}; 'llama' can be read")
    try:
        config = _config(fields, tied="output.weight" not in {tensor.name for tensor in reader.tensors})
        tokenizer = _tokenizer(fields, config.vocab_size)
    except (ValueError, TypeError) as error:  # TypeError: a list or a text in place of a number
        raise CheckpointError(f"{path}: {error}") from error
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def read(name: str) -> Tensor:
        tensor = tensors.pop(name)
        return torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)).to(dtype)

    try:
        state = _state(config, read)
    except KeyError as error:
        raise CheckpointError(f"{path} lacks the tensor {error}") from error
    if tensors:
        raise CheckpointError(f"{path} holds the tensor {min(tensors)!r}, which is not implemented")
    return config, tokenizer, state


def _config(fields: dict, tied: bool) -> Config:
    """Every key of the architecture is read, or has a value that changes nothing, or is refused by its name."""
    own = {key.removeprefix("llama."): value for key, value in fields.items() if key.startswith("llama.")}

    def take(key: str, default: object = None) -> object:
        value = own.pop(key, default)
        if value is None:
            raise CheckpointError(f"the key llama.{key} is missing")
        return value

    heads, hidden = take("attention.head_count"), take("embedding_length")
    check_size("llama.attention.head_count", heads)
    check_size("llama.embedding_length", hidden)
    rotated = take("rope.dimension_count", own.get("attention.key_length", hidden // heads))
    for key in ("attention.key_length", "attention.value_length"):
        if own.pop(key, rotated) != rotated:
            raise CheckpointError(f"llama.{key} must be llama.rope.dimension_count, {rotated}; anything else is not implemented")
    length, window = take("context_length"), own.pop("attention.sliding_window", None)
    original = own.pop("rope.scaling.original_context_length", None)
    config = Config(
        vocab_size=take("vocab_size", len(_needed(fields, "tokenizer.ggml.tokens"))),
        hidden_size=hidden,
        layers=take("block_count"),
        heads=heads,
        kv_heads=take("attention.head_count_kv", heads),
        head_dim=rotated,
        ffn_size=take("feed_forward_length"),
        max_length=length,
        rope_theta=float(take("rope.freq_base", 10_000.0)),
        norm_eps=float(take("attention.layer_norm_rms_epsilon")),
        tied=tied,
        rope_scaling=_rope_scaling(own, original or length),
    )
    for key, value in own.items():
        if value not in HARMLESS.get(key, ()):
            raise CheckpointError(f"llama.{key} = {value!r} is not implemented")
    longest = scaled_length(length, config.rope_scaling, original)
    if window:
        check_size("llama.attention.sliding_window", window)
        longest = min(longest, window)  # up to there a window hides nothing
    return replace(config, max_length=longest)


def _rope_scaling(own: dict, original: int) -> dict | None:
    """Config.rope_scaling. Takes what it reads out of `own`."""
    given = {key: own.pop(f"rope.scaling.{key}", None) for key in ("type", "factor")}
    kind, factor = given["type"], given["factor"]
    if factor is None:  # its name in older files
        factor, kind = own.pop("rope.scale_linear", None), kind or "linear"
    if kind == "none" or not factor:
        if kind in ("none", "linear"):
            return None
        raise CheckpointError(f"llama.rope.scaling.type is {kind!r}, and the key llama.rope.scaling.factor is missing")
    scaling = {"rope_type": kind or "linear", "factor": float(factor)}
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = float(original)
        betas = {name: own.pop(f"rope.scaling.yarn_{name}", None) for name in ("beta_fast", "beta_slow")}
        scaling |= {name: float(value) for name, value in betas.items() if value is not None}
    return scaling


def _needed(fields: dict, key: str) -> list:
    if key not in fields:
        raise CheckpointError(f"the key {key} is missing")
    return fields[key]


def _tokenizer(fields: dict, vocab_size: int) -> Tokenizer:
    kind, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if (kind, pre) != ("gpt2", "smollm"):
        raise CheckpointError(f"tokenizer {kind!r} with pre-tokenizer {pre!r} is unknown; 'gpt2' with 'smollm' can be read")
    tokens = _needed(fields, "tokenizer.ggml.tokens")
    special = {role: fields.get(f"tokenizer.ggml.{role}_token_id") for role in ("bos", *ENDS)}
    special = {role: id for role, id in special.items() if id is not None}
    for role, id in special.items():
        if not 0 <= id < min(len(tokens), vocab_size):
            least = min(len(tokens), vocab_size)
            raise CheckpointError(f"tokenizer.ggml.{role}_token_id must be an id in [0, {least}), got {id}")
    return from_gguf_fields(
        tokens,
        _needed(fields, "tokenizer.ggml.token_type"),
        _needed(fields, "tokenizer.ggml.merges"),
        fields.get("tokenizer.chat_template"),
        {f"{role}_token": id for role, id in special.items() if role in ("bos", "eos")},
        tuple(dict.fromkeys(special[role] for role in ENDS if role in special)),
    )


def _state(config: Config, read) -> dict[str, Tensor]:
    """GGUF's tensor names → ours; q, k, v are stacked for one product, gate and up for another."""
    state = {"embedding.weight": read("token_embd.weight"), "norm.weight": read("output_norm.weight")}
    if not config.tied:
        state["head.weight"] = read("output.weight")
    with progress() as bar:
        for i in bar.track(range(config.layers), description="reading weights"):
            state |= _layer(config, read, f"blk.{i}.", f"layers.{i}.")
    return state


def _layer(config: Config, read, theirs: str, ours: str) -> dict[str, Tensor]:
    q = _unpermute(read(theirs + "attn_q.weight"), config.heads)
    k = _unpermute(read(theirs + "attn_k.weight"), config.kv_heads)
    return {
        ours + "attention_norm.weight": read(theirs + "attn_norm.weight"),
        ours + "attention.qkv.weight": torch.cat([q, k, read(theirs + "attn_v.weight")]),
        ours + "attention.out.weight": read(theirs + "attn_output.weight"),
        ours + "ffn_norm.weight": read(theirs + "ffn_norm.weight"),
        ours + "ffn.gate_up.weight": torch.cat([read(theirs + "ffn_gate.weight"), read(theirs + "ffn_up.weight")]),
        ours + "ffn.down.weight": read(theirs + "ffn_down.weight"),
    }


def _unpermute(weight: Tensor, heads: int) -> Tensor:
    """GGUF interleaves the two halves of every rotated pair; our rotary form wants them side by side. (heads · d, D)."""
    return weight.view(heads, -1, 2, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)
