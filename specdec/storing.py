"""Tensors on disk."""

from __future__ import annotations

from pathlib import Path

from safetensors import torch as safetensors
from torch import Tensor


def save_file(tensors: dict[str, Tensor], path: str | Path, metadata: dict[str, str] | None = None) -> None:
    """`safetensors.torch.save_file`, with the rights that the umask gives a new file: the original keeps its files from everybody else,
    which no second user of a cache, a harvest or a head can read."""
    path = Path(path)
    path.unlink(missing_ok=True)
    path.touch()
    rights = path.stat().st_mode
    safetensors.save_file(tensors, path, metadata)
    path.chmod(rights)
