"""What the target computed while it wrote a harvest: kept, so that training need not run it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from specdec.distributions import Sampling
from specdec.drafters.base import Outcome
from specdec.models.transformer import Transformer
from specdec.training.texts import Batched, Piece, Texts
from specdec.tree import TokenTree
from specdec.uniforms import Uniforms


def fingerprint(target: Transformer) -> str:
    """Tells targets apart: SHA-256 of the configuration, the dtype and two of the tensors that every training moves."""
    found = hashlib.sha256(json.dumps(asdict(target.config)).encode())
    for tensor in (target.embedding.weight, target.norm.weight):
        found.update(str(tensor.dtype).encode() + tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def features_path(shard: Path) -> Path:
    return shard.with_name(shard.name.replace("shard-", "features-"))


@dataclass
class Recorder:
    """A drafter that proposes nothing, and keeps what the target computed of every text.

    layers: of the target, whose outputs are kept beside its last features.
    """

    layers: tuple[int, ...]
    max_nodes: int = field(default=0, init=False)
    records: list[_Record] = field(default_factory=list, init=False)  # one for each request, in the order of their beginning

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _Record:
        self.records.append(_Record(target.device))
        return self.records[-1]

    def arrays(self, lengths: list[int]) -> dict[str, Tensor]:
        """hidden (n, D) and layers (n, k D), bfloat16: of each text its first so many tokens, one text behind the other."""
        pairs = list(zip(self.records, lengths, strict=True))
        return {name: torch.cat([torch.cat(getattr(record, name))[:length] for record, length in pairs]) for name in ("hidden", "layers")}


class _Record:
    def __init__(self, device: torch.device):
        self.device, self.hidden, self.layers = device, [], []

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        return TokenTree.empty(self.device)

    def observe(self, outcome: Outcome) -> None:
        self.hidden.append(outcome.hidden.to("cpu", torch.bfloat16))
        self.layers.append(outcome.layers.to("cpu", torch.bfloat16))


class Recorded(Batched):
    """The texts of a harvest, and what the target computed when it wrote them, mapped from the files.

    Behind tokens and mask a batch has hidden (B, T, D), and layers (B, T, n D) if any are asked for, both bfloat16. A text's last token
    has none: the mask leaves it out. A batch that lacks something, since a shard has no features or none of these layers, is tokens and
    mask alone, as that of any texts.

    Args:
        target: whose features they must be.
        layers: of the target, whose outputs are wanted beside its last features.

    Attributes:
        recorded: how many texts have what is wanted.

    Raises:
        ValueError: if the features are another target's.
    """

    def __init__(self, texts: Texts, target: Transformer, layers: Sequence[int] = ()):
        self.texts, self.places, self.names = texts.texts, texts.places, ["hidden", "layers"] if layers else ["hidden"]
        mark = fingerprint(target)
        shards = dict.fromkeys(place.shard for place in self.places)
        self.files = {shard: _open(features_path(shard), mark, layers) for shard in shards}
        self.recorded = sum(self.files[place.shard] is not None for place in self.places)

    def _batch(self, rows: list[Piece]) -> tuple[Tensor, ...]:
        tokens, mask = super()._batch(rows)
        if any(self.files[self.places[piece.text].shard] is None for piece in rows):
            return tokens, mask
        for row, piece in enumerate(rows):
            mask[row, self._known(piece) :] = False
        return tokens, mask, *(self._padded(name, rows, tokens.shape[1]) for name in self.names)

    def _known(self, piece: Piece) -> int:
        """How many of its tokens the target has read."""
        return min(piece.stop, len(self.texts[piece.text]) - 1) - piece.start

    def _padded(self, name: str, rows: list[Piece], length: int) -> Tensor:
        """(B, length, …) with zeros behind what is known."""
        parts = []
        for piece in rows:
            place = self.places[piece.text]
            first = place.row + piece.start
            parts.append(self.files[place.shard].get_slice(name)[first : first + self._known(piece)])
        padded = parts[0].new_zeros(len(rows), length, parts[0].shape[-1])
        for row, part in zip(padded, parts, strict=True):
            row[: len(part)] = part
        return padded


def _open(path: Path, mark: str, layers: Sequence[int]) -> safe_open | None:
    """The file, if it is there and has these layers."""
    if not path.exists():
        return None
    file = safe_open(path, "pt")
    about = json.loads(file.metadata()["about"])
    if about["target"] != mark:
        raise ValueError(f"{path} has the features of another target; without features (--no-features) this one reads the texts itself")
    return file if not layers or about["layers"] == list(layers) else None
