"""What Medusa's heads and EAGLE's have in common: which target they were made for, and how they are stored."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Protocol, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from specdec.models.errors import CheckpointError
from specdec.models.linear import Linear, pack_linears
from specdec.models.transformer import Transformer
from specdec.storing import save_file

FORMAT = 1  # raise it when the names or the layout of the stored tensors change


class HeadConfig(Protocol):
    """The shape of a head: a frozen dataclass."""

    @property
    def version(self) -> int:
        """Of the method."""
        ...

    def check(self, target: Transformer) -> None:
        """Raises ValueError if a head of this shape cannot work for the target."""
        ...

    @classmethod
    def from_dict(cls, fields: dict) -> Self:
        """The inverse of dataclasses.asdict."""
        ...


class DraftHead(nn.Module):
    """Trained parts that draft for one target, whose embedding and LM head they may share: those are passed in, never stored.

    A subclass names its `kind` and its `config_class`, and is built from a config alone.
    """

    packs = True  # whether `load` packs its weights where the target's are
    kind: str
    config_class: type[HeadConfig]

    def __init__(self, config: HeadConfig):
        super().__init__()
        self.config = config

    def check(self, target: Transformer) -> None:
        """Raises ValueError if the head was made for another target, or has another device or dtype than the target's activations."""
        self.config.check(target)
        for weight in self.parameters():
            if (weight.device, weight.dtype) != (target.device, target.dtype):
                raise ValueError(
                    f"the head's weights are {weight.dtype} on {weight.device}, "
                    f"the target works in {target.dtype} on {target.device}"
                )

    def check_state(self) -> None:
        """Raises ValueError if a stored tensor holds what no such head can hold."""
        for name, weight in self.named_parameters():
            if not weight.isfinite().all():
                raise ValueError(f"{name} has numbers that are not finite")

    def save(self, path: str | Path) -> None:
        """Writes a safetensors file with the metadata kind, version, format and config (JSON). It appears under its name only when
        it is whole; a file that was there is replaced.

        Raises:
            ValueError: if the weights are packed. The file that the head came from has them.
        """
        if any(isinstance(module, Linear) and module.weight is None for module in self.modules()):
            raise ValueError("the head's weights are packed for drafting and cannot be stored; copy the file that it was loaded from")
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {
            "kind": self.kind, "version": str(self.config.version), "format": str(FORMAT), "config": json.dumps(asdict(self.config)),
        }  # fmt: skip
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="saving-") as scratch:
            part = Path(scratch) / path.name
            save_file({name: tensor.detach().contiguous() for name, tensor in self.state_dict().items()}, part, about)
            part.replace(path)

    @classmethod
    def load(cls, path: str | Path, target: Transformer) -> Self:
        """Reads what `save` wrote, in the dtype and on the device of the target's activations, to draft with. Where the target's
        weights are packed (specdec/models/linear.py), so are the head's: it can be trained no further then.

        Raises:
            CheckpointError (a ValueError): if the file is missing or damaged, holds a head of another kind or format, or one that was
                made for another target. It names the file and what is wrong.
        """
        path = Path(path)
        if not path.exists():
            raise CheckpointError(f"{path} does not exist")
        if path.is_dir():
            raise CheckpointError(f"{path} is a folder; trained heads are one .safetensors file")
        try:
            with safe_open(path, framework="pt") as file:
                about = file.metadata() or {}
                state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged, or no safetensors file: {error}") from error
        try:
            head = cls._from_file(about, state, target)
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error
        head = head.to(target.device, target.dtype).eval()
        if cls.packs and target.head.weight is None:
            pack_linears(head.requires_grad_(False))
        return head

    @classmethod
    def _from_file(cls, about: dict[str, str], state: dict[str, Tensor], target: Transformer) -> Self:
        for name, expected in (("kind", cls.kind), ("format", str(FORMAT))):
            if about.get(name) != expected:
                raise ValueError(f"its {name} is {about.get(name)!r}, expected {expected!r}")
        try:
            config = cls.config_class.from_dict(json.loads(about["config"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"its config cannot be read: {error}") from error
        if about.get("version") != str(config.version):
            raise ValueError(f"its version is {about.get('version')!r}, and its config says {config.version}")
        config.check(target)
        with torch.device("meta"):
            head = cls(config)
        _check_tensors(state, head.state_dict())
        head.load_state_dict(state, assign=True)
        head.check_state()
        return head


def _check_tensors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    if found.keys() != expected.keys():
        missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
        raise ValueError(f"it lacks the tensors {missing} and has {unknown} that are not known")
    for name, tensor in found.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{name} must be {tuple(expected[name].shape)}, got {tuple(tensor.shape)}")
        floating = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
        wanted = floating if expected[name].is_floating_point() else (torch.int64,)
        if tensor.dtype not in wanted:
            raise ValueError(f"{name} has the dtype {tensor.dtype}, expected one of {[str(dtype) for dtype in wanted]}")


def check_made_for(made_for: dict[str, object], target: Transformer) -> None:
    """Raises ValueError at the first field in which the target's config is another than the one the head was made for."""
    for name, ours in made_for.items():
        theirs = getattr(target.config, name)
        if ours != theirs:
            raise ValueError(f"the head was made for a target with {name} = {ours}, this one has {theirs}")


@torch.no_grad()
def randomise(module: nn.Module, seed: int, scale: float) -> None:
    """Normal weights of standard deviation scale / √inputs; norms stay as they are."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if "norm" not in name:
            parameter.normal_(0, scale * parameter.shape[-1] ** -0.5, generator=generator)
