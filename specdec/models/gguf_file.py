"""Reading a Llama-architecture GGUF file: the container and the dequantisation are the gguf package's, the names ours."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor

from specdec.config import Config
from specdec.models.errors import CheckpointError
from specdec.models.tokenizer import Tokenizer, from_gguf_fields
from specdec.progress import progress


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
    except ValueError as error:
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
    return config, _tokenizer(fields), state


def _config(fields: dict, tied: bool) -> Config:
    heads, hidden = fields["llama.attention.head_count"], fields["llama.embedding_length"]
    return Config(
        vocab_size=fields.get("llama.vocab_size") or len(fields["tokenizer.ggml.tokens"]),
        hidden_size=hidden,
        layers=fields["llama.block_count"],
        heads=heads,
        kv_heads=fields.get("llama.attention.head_count_kv", heads),
        head_dim=fields.get("llama.rope.dimension_count", hidden // heads),
        ffn_size=fields["llama.feed_forward_length"],
        max_length=fields["llama.context_length"],
        rope_theta=float(fields.get("llama.rope.freq_base", 10_000.0)),
        norm_eps=float(fields["llama.attention.layer_norm_rms_epsilon"]),
        tied=tied,
    )


def _tokenizer(fields: dict) -> Tokenizer:
    kind, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if (kind, pre) != ("gpt2", "smollm"):
        raise CheckpointError(f"tokenizer {kind!r} with pre-tokenizer {pre!r} is unknown; 'gpt2' with 'smollm' can be read")
    special = {f"{role}_token": fields.get(f"tokenizer.ggml.{role}_token_id") for role in ("bos", "eos")}
    return from_gguf_fields(
        fields["tokenizer.ggml.tokens"],
        fields["tokenizer.ggml.token_type"],
        fields["tokenizer.ggml.merges"],
        fields.get("tokenizer.chat_template"),
        {role: id for role, id in special.items() if id is not None},
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
