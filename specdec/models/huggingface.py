"""Reading a Hugging Face directory: config.json, safetensors, and a tokenizer.json if there is one.

Llama, Mistral, Qwen2 and Qwen3 are one transformer with a few switches, which `FAMILIES` lists. What a config.json asks for beyond
them is an error, never a model that computes something else; so is a tensor that is missing, left over, or of another shape. All of
that is found before the first weight is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specdec.config import Config, rope_keys, scaled_length
from specdec.models.errors import CheckpointError
from specdec.models.tokenizer import Tokenizer, from_tokenizer_json
from specdec.progress import progress


@dataclass(frozen=True)
class Family:
    """What an architecture fixes without saying so in config.json.

    bias: on q, k and v; None: as `attention_bias` says, and then on the output projection too.
    window: the `sliding_window` that every layer has where config.json names none; None: the architecture has no such window.
    """

    model_type: str
    bias: bool | None
    qk_norm: bool = False
    window: int | None = None


FAMILIES = {
    "LlamaForCausalLM": Family("llama", bias=None),
    "MistralForCausalLM": Family("mistral", bias=False, window=4096),
    "Qwen2ForCausalLM": Family("qwen2", bias=True),
    "Qwen3ForCausalLM": Family("qwen3", bias=None, qk_norm=True),
}

# Keys that change the numbers, and the values at which they do not. A key that is absent or null does not either.
HARMLESS = {
    "hidden_act": ("silu", "swish"),
    "mlp_bias": (False,),
    "use_sliding_window": (False,),
    "partial_rotary_factor": (1,),
    "quantization_config": (),
}

DTYPES = ("BF16", "F16", "F32", "F64")

Sources = dict[str, list[tuple[str, tuple[int, ...]]]]


def read_huggingface(path: Path, dtype: torch.dtype) -> tuple[Config, Tokenizer | None, dict[str, Tensor]]:
    """Configuration, tokenizer and weights of a directory that `save_pretrained` wrote, or one laid out like it.

    Args:
        dtype: of the weights that are returned, on the CPU. Those that are in it already stay mapped from the file.

    Returns:
        (config, tokenizer or None without a tokenizer.json, tensors by our names).

    Raises:
        CheckpointError: naming the file, and the key or the tensor.
    """
    about = _json(path / "config.json")
    config = _config(path / "config.json", about)
    with _open(_weight_files(path)) as tensors:
        parts = sources(config)
        _check(path, config, parts, tensors)
        tokenizer = _tokenizer(path, about)
        return config, tokenizer, _read(parts, tensors, dtype)


def _json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no readable JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def _json_if_there(path: Path) -> dict:
    return _json(path) if path.exists() else {}


# config.json → Config


def _config(path: Path, about: dict) -> Config:
    family = _family(path, about)
    _refuse_what_is_not_implemented(path, about)

    def count(key: str, default: int | None = None) -> int:
        value = default if about.get(key) is None else about[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise CheckpointError(f"{path}: {key} must be a whole number >= 1, got {value!r}")
        return value

    heads, max_length = count("num_attention_heads"), count("max_position_embeddings")
    biased = _flag(path, about, "attention_bias")
    theta, scaling = _rope(path, about, max_length)
    shape = {
        "vocab_size": count("vocab_size"),
        "hidden_size": count("hidden_size"),
        "layers": count("num_hidden_layers"),
        "heads": heads,
        "kv_heads": count("num_key_value_heads", heads),
        "head_dim": count("head_dim", count("hidden_size") // heads),
        "ffn_size": count("intermediate_size"),
        "max_length": max_length,
        "rope_theta": theta,
        "norm_eps": _positive(path, about, "rms_norm_eps"),
        "tied": _flag(path, about, "tie_word_embeddings"),
        "qkv_bias": biased if family.bias is None else family.bias,
        "out_bias": biased and family.bias is None,
        "qk_norm": family.qk_norm,
        "rope_scaling": scaling,
    }
    try:
        config = Config(**shape)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    longest = scaled_length(max_length, scaling, _original_length(path, about))
    if family.window is not None and about.get("sliding_window", family.window) is not None:
        longest = min(longest, count("sliding_window", family.window))  # up to there a window hides nothing
    return replace(config, max_length=longest)


def _family(path: Path, about: dict) -> Family:
    names, kind = about.get("architectures"), about.get("model_type")
    if names:
        family = FAMILIES.get(names[0]) if isinstance(names, list) and isinstance(names[0], str) else None
    else:
        family = next((family for family in FAMILIES.values() if family.model_type == kind), None)
    if family is None or kind not in (None, family.model_type):
        known = ", ".join(f"{name} ({family.model_type})" for name, family in FAMILIES.items())
        raise CheckpointError(f"{path}: architectures {names!r} with model_type {kind!r} is unknown; can be read: {known}")
    return family


def _refuse_what_is_not_implemented(path: Path, about: dict) -> None:
    for key, harmless in HARMLESS.items():
        if about.get(key) is not None and about[key] not in harmless:
            raise CheckpointError(f"{path}: {key} = {about[key]!r} is not implemented")
    others = [kind for kind in about.get("layer_types") or () if kind != "full_attention"]
    if others:
        raise CheckpointError(f"{path}: layer_types with {others[0]!r} are not implemented")


def _rope_object(path: Path, about: dict) -> dict:
    """Older files have rope_theta and rope_scaling, newer ones both in rope_parameters."""
    key = "rope_scaling" if about.get("rope_scaling") else "rope_parameters"
    given = about.get(key) or {}
    if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
        raise CheckpointError(f"{path}: {key} must be one object for all layers, got {given!r}")
    return given


def _original_length(path: Path, about: dict) -> float | None:
    """The longest context before the scaling, where the file names it."""
    key = "original_max_position_embeddings"
    found = about.get(key) or _rope_object(path, about).get(key)
    return None if found is None else _positive(path, {key: found}, key)


def _rope(path: Path, about: dict, max_length: int) -> tuple[float, dict | None]:
    """(rope_theta, Config.rope_scaling)."""
    given = _rope_object(path, about)
    _refuse_what_is_not_implemented(path, given)
    theta = _positive(path, {"rope_theta": 10_000.0} | about | given, "rope_theta")
    kind = str(given.get("rope_type", given.get("type", "default")))
    if kind == "default":
        return theta, None
    scaling = {"rope_type": kind} | {name: given[name] for name in rope_keys(kind) if given.get(name) is not None}
    if kind in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = _original_length(path, about) or float(max_length)
    if kind == "yarn" and "factor" not in scaling:
        scaling["factor"] = max_length / scaling["original_max_position_embeddings"]
    return theta, scaling


def _flag(path: Path, about: dict, key: str) -> bool:
    value = about.get(key) or False
    if not isinstance(value, bool):
        raise CheckpointError(f"{path}: {key} must be true or false, got {value!r}")
    return value


def _positive(path: Path, about: dict, key: str) -> float:
    value = about.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise CheckpointError(f"{path}: {key} must be a number > 0, got {value!r}")
    return float(value)


# Tensors


def _weight_files(path: Path) -> list[Path]:
    index = path / "model.safetensors.index.json"
    if (path / "model.safetensors").exists():
        return [path / "model.safetensors"]
    if not index.exists():
        files = sorted(path.glob("*.safetensors"))
        if len(files) != 1:
            found = ", ".join(file.name for file in files) or "no safetensors at all"
            raise CheckpointError(f"{path} has neither model.safetensors nor {index.name}, but {found}")
        return files
    shards = _json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise CheckpointError(f"{index}: weight_map must say in which file each tensor lies")
    for tensor, name in shards.items():
        if not (path / name).is_file():
            raise CheckpointError(f"{path / name} is missing; {index.name} has {tensor} in it")
    return [path / name for name in sorted(set(shards.values()))]


@contextmanager
def _open(files: Iterable[Path]) -> Iterator[dict[str, tuple[Path, safe_open]]]:
    """Name of a tensor → the file it lies in, by path and open. Headers are read, tensors not."""
    with ExitStack() as stack:
        tensors = {}
        for path in files:
            try:
                file = stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path} is no whole safetensors file: {error}") from error
            for name in file.keys():  # noqa: SIM118 - not a mapping
                if name in tensors:
                    raise CheckpointError(f"{path} and {tensors[name][0].name} both hold the tensor {name}")
                tensors[name] = path, file
        yield tensors


def sources(config: Config) -> Sources:
    """Our tensors → theirs, with their shapes. Several are stacked: q, k, v for one product, gate and up for another.

    Rotated pairs already lie half a head apart, as ours do.
    """
    V, D = config.vocab_size, config.hidden_size
    found = {"embedding.weight": [("model.embed_tokens.weight", (V, D))]}
    for i in range(config.layers):
        for ours, theirs in _layer(config).items():
            found[f"layers.{i}.{ours}"] = [(f"model.layers.{i}.{name}", shape) for name, shape in theirs]
    found["norm.weight"] = [("model.norm.weight", (D,))]
    if not config.tied:
        found["head.weight"] = [("lm_head.weight", (V, D))]
    return found


def _layer(config: Config) -> Sources:
    D, F, d = config.hidden_size, config.ffn_size, config.head_dim
    rows = {"q": config.heads * d, "k": config.kv_heads * d, "v": config.kv_heads * d}
    layer = {
        "attention_norm.weight": [("input_layernorm.weight", (D,))],
        "attention.qkv.weight": [(f"self_attn.{x}_proj.weight", (n, D)) for x, n in rows.items()],
        "attention.out.weight": [("self_attn.o_proj.weight", (D, rows["q"]))],
        "ffn_norm.weight": [("post_attention_layernorm.weight", (D,))],
        "ffn.gate_up.weight": [("mlp.gate_proj.weight", (F, D)), ("mlp.up_proj.weight", (F, D))],
        "ffn.down.weight": [("mlp.down_proj.weight", (D, F))],
    }
    if config.qkv_bias:
        layer["attention.qkv.bias"] = [(f"self_attn.{x}_proj.bias", (n,)) for x, n in rows.items()]
    if config.out_bias:
        layer["attention.out.bias"] = [("self_attn.o_proj.bias", (D,))]
    if config.qk_norm:
        layer |= {f"attention.{x}_norm.weight": [(f"self_attn.{x}_norm.weight", (d,))] for x in "qk"}
    return layer


def _check(path: Path, config: Config, sources: Sources, tensors: dict) -> None:
    """Raises CheckpointError unless the files hold just what the configuration asks for."""
    wanted = {name: shape for parts in sources.values() for name, shape in parts}
    if config.tied and "lm_head.weight" in tensors:
        wanted["lm_head.weight"] = wanted["model.embed_tokens.weight"]
    missing = [name for name in wanted if name not in tensors]
    if missing:
        raise CheckpointError(f"{path} lacks {_some(missing)}, which its config.json asks for")
    # Old files store the rotary frequencies, which follow from config.json.
    left_over = [name for name in tensors if name not in wanted and not name.endswith("rotary_emb.inv_freq")]
    if left_over:
        raise CheckpointError(f"{tensors[left_over[0]][0]} holds {_some(left_over)}, for which its config.json has no place")
    for name, shape in wanted.items():
        where, file = tensors[name]
        part = file.get_slice(name)
        if tuple(part.get_shape()) != shape:
            raise CheckpointError(f"{where}: the tensor {name} must be {shape}, got {tuple(part.get_shape())}")
        if part.get_dtype() not in DTYPES:
            raise CheckpointError(f"{where}: the tensor {name} is {part.get_dtype()}; {', '.join(DTYPES)} can be read")
    if "lm_head.weight" in tensors and config.tied:
        head, embedding = (tensors[name][1].get_tensor(name) for name in ("lm_head.weight", "model.embed_tokens.weight"))
        if not torch.equal(head, embedding):
            where = tensors["lm_head.weight"][0]
            raise CheckpointError(f"{where}: tie_word_embeddings is true, but lm_head.weight is not model.embed_tokens.weight")


def _some(names: list[str]) -> str:
    return f"the tensor {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _read(sources: Sources, tensors: dict, dtype: torch.dtype) -> dict[str, Tensor]:
    state = {}
    with progress() as bar:
        for ours, theirs in bar.track(sources.items(), description="reading weights"):
            parts = [tensors[name][1].get_tensor(name).to(dtype) for name, _ in theirs]
            state[ours] = parts[0] if len(parts) == 1 else torch.cat(parts)
    return state


# Tokenizer


def _tokenizer(path: Path, about: dict) -> Tokenizer | None:
    """Stop tokens from every file that names some, the chat template from its own file or tokenizer_config.json."""
    generation, settings = (_json_if_there(path / name) for name in ("generation_config.json", "tokenizer_config.json"))
    if not (path / "tokenizer.json").exists():
        return None
    template = settings.get("chat_template")
    if isinstance(template, list):  # one a purpose; the others are for tools
        template = {each.get("name"): each.get("template") for each in template}.get("default")
    if (path / "chat_template.jinja").exists():
        template = (path / "chat_template.jinja").read_text(encoding="utf-8")
    if not isinstance(template, str | None):
        raise CheckpointError(f"{path / 'tokenizer_config.json'}: chat_template must be a text, got {template!r}")
    named = {role: token.get("content") if isinstance(token, dict) else token for role, token in settings.items()}
    special = {role: token for role, token in named.items() if role.endswith("_token") and isinstance(token, str)}
    tokenizer = from_tokenizer_json(path / "tokenizer.json", (), template, special)
    named_by = {path / "generation_config.json": generation, path / "config.json": about}
    stop = [token for file, content in named_by.items() for token in _stop_tokens(file, content, about["vocab_size"])]
    if "eos_token" in special:
        stop.append(_id_of(path / "tokenizer_config.json", special["eos_token"], tokenizer, about["vocab_size"]))
    return replace(tokenizer, stop_tokens=tuple(dict.fromkeys(stop)))


def _stop_tokens(path: Path, content: dict, vocab_size: int) -> list[int]:
    """What the file says under eos_token_id. An id outside the vocabulary would never end a text."""
    stop = content.get("eos_token_id")
    tokens = [] if stop is None else stop if isinstance(stop, list) else [stop]
    if not all(isinstance(token, int) and not isinstance(token, bool) and 0 <= token < vocab_size for token in tokens):
        raise CheckpointError(f"{path}: eos_token_id must be an id or a list of ids in [0, {vocab_size}), got {stop!r}")
    return tokens


def _id_of(path: Path, token: str, tokenizer: Tokenizer, vocab_size: int) -> int:
    found = tokenizer.fast.token_to_id(token)
    if found is None or found >= vocab_size:
        where = "unknown to tokenizer.json" if found is None else f"the id {found}, outside the vocabulary of {vocab_size}"
        raise CheckpointError(f"{path}: eos_token {token!r} is {where}, so that it would never end a text")
    return found
