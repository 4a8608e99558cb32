"""A small GPT of its own: a transformer over characters, trained in minutes, small enough to look inside.

Its files are a Hugging Face directory (config.json, model.safetensors, tokenizer.json), so that `load_model` reads it like any other
target, and `specdec train medusa` and `distill` make heads and drafts for it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models
from torch import Tensor

from specdec.config import Config
from specdec.drafters.distilled import Whole
from specdec.drafters.heads import randomise
from specdec.models.huggingface import sources
from specdec.models.tokenizer import Tokenizer
from specdec.models.transformer import Transformer
from specdec.storing import save_file
from specdec.training.config import GPT_HEAD_DIM, TrainConfig
from specdec.training.corpora import documents
from specdec.training.texts import Batched

UNKNOWN = "\ufffd"
CHARACTERS = (UNKNOWN, "\n", *map(chr, range(32, 127)))  # by their ids; the plays are ASCII without tabs


def character_tokenizer() -> Tokenizer:
    """An id for every printable ASCII character and for the end of a line. All else is UNKNOWN, and is decoded as that."""
    fast = FastTokenizer(models.BPE({character: id for id, character in enumerate(CHARACTERS)}, [], unk_token=UNKNOWN))
    fast.decoder = decoders.Fuse()  # nothing between two characters
    return Tokenizer(fast)


class Documents(Batched):
    """A corpus as texts to learn from, each document whole (`specdec.training.runs.Source`).

    Args:
        source, split: as `specdec.training.corpora.documents` takes them.

    Attributes:
        texts: arrays of ids.

    Raises:
        ValueError: as `documents`, or if there is no tokenizer.
    """

    def __init__(self, source: str, split: str, tokenizer: Tokenizer | None):
        if tokenizer is None:
            raise ValueError(f"the target has no tokenizer for the texts of {source}")
        self.texts = [np.array(tokenizer.encode(text), np.int32) for text in documents(source, split).values()]


def new_gpt(config: TrainConfig) -> Transformer:
    """The model as training begins, float32; a function of config.hidden_size, layers, length and seed.

    Normal weights of variance 1 / inputs. Of the 2 · layers products that are added to the residual stream each is smaller by the
    root of their number (GPT-2, Radford et al. 2019, section 2.3).
    """
    D, heads = config.hidden_size, config.hidden_size // GPT_HEAD_DIM
    shape = Config(len(CHARACTERS), D, config.layers, heads, heads, GPT_HEAD_DIM, ffn_size=3 * D, max_length=config.length)
    model = Transformer(shape, character_tokenizer())
    randomise(model, config.seed, 1.0)
    with torch.no_grad():
        for layer in model.layers:
            for added in (layer.attention.out, layer.ffn.down):
                added.weight /= (2 * config.layers) ** 0.5
    return model


def next_token_loss(model: Transformer, tokens: Tensor, mask: Tensor) -> Tensor:
    """The cross-entropy of the texts in nats a token, the mean over all tokens but the first of each.

    tokens: (B, T) int64; mask: (B, T) True where they are real, padding at the end → (). No cache: the gradient can pass.
    """
    x = model.embedding(tokens)
    rope = tuple(table[: tokens.shape[1]].to(x.dtype).unsqueeze(-3) for table in (model.cos, model.sin))
    for index, layer in enumerate(model.layers):
        x = layer(x, rope, index, Whole())
    known = mask[:, 1:]
    return F.cross_entropy(model.head(model.norm(x[:, :-1][known])), tokens[:, 1:][known])


def save_gpt(model: Transformer, directory: str | Path) -> None:
    """Writes config.json, model.safetensors (float16) and tokenizer.json, for `load_model(directory)`.

    Other files there stay. config.json comes last, and an old one goes first: a directory that has one is whole.
    """
    directory, state = Path(directory), model.state_dict()
    tensors = {}
    for ours, parts in sources(model.config).items():
        pieces = state[ours].split([shape[0] for _, shape in parts])
        tensors |= {name: piece.half().cpu().contiguous() for (name, _), piece in zip(parts, pieces, strict=True)}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix="saving-") as scratch:
        save_file(tensors, Path(scratch) / "model.safetensors", {"format": "pt"})
        model.tokenizer.fast.save(str(Path(scratch) / "tokenizer.json"))
        (Path(scratch) / "config.json").write_text(json.dumps(_about(model.config), indent=1) + "\n")
        for name in ("model.safetensors", "tokenizer.json", "config.json"):
            (Path(scratch) / name).replace(directory / name)


def _about(config: Config) -> dict:
    """config.json, in Hugging Face's words."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn_size,
        "max_position_embeddings": config.max_length,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": config.tied,
        "torch_dtype": "float16",
    }
