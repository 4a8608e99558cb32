"""Texts as batches to learn from, and those that a harvest wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from specdec.config import check_size
from specdec.training.corpora import SPLITS, is_held_out

VALIDATION = 0.05  # of the texts


@dataclass(frozen=True)
class Shard:
    """A shard as it lies on disk. texts: arrays of ids; generated: how many of each text's tokens come behind its prompt."""

    texts: list[np.ndarray]
    prompt_lengths: list[int]
    kinds: list[int]
    dropped: list[int]
    about: dict

    @property
    def generated(self) -> list[int]:
        return [len(text) - prompt for text, prompt in zip(self.texts, self.prompt_lengths, strict=True)]


def read_shard(path: Path) -> Shard:
    with safe_open(path, framework="numpy") as file:
        tokens, lengths, prompts, kinds, dropped = map(
            file.get_tensor, ("tokens", "lengths", "prompt_lengths", "kinds", "dropped")
        )
        about = json.loads(file.metadata()["about"])
    return Shard(np.split(tokens, np.cumsum(lengths)[:-1]), prompts.tolist(), kinds.tolist(), dropped.tolist(), about)


class Batched:
    """Texts that come as batches.

    Attributes:
        texts: arrays of ids.
    """

    texts: list[np.ndarray]

    def batches(self, batch_size: int, length: int, seed: int, start_step: int = 0) -> Iterator[tuple[Tensor, ...]]:
        """Endless: for each step tokens (B, T) int64 and mask (B, T) bool, True where a token is; T <= length.

        A row is one text, or one of the equal pieces of a text longer than `length`; every epoch has each of them once, and fills
        its last batch with its first ones. Rows of a batch are of similar length, padded at the end: in a causal model nothing looks
        at the padding, and no text at another. Leave what the mask leaves out out of the loss. (Packed rows would need a mask of
        their own in every attention, the drafts' too, to save the few percent of padding that remain.)

        Step s is a function of (seed, s): a training that stopped goes on at start_step without replay.

        Raises:
            ValueError: if a size is not a whole number >= 1, or start_step is negative.
        """
        check_size("batch_size", batch_size)
        check_size("length", length)
        if start_step < 0:
            raise ValueError(f"start_step must be >= 0, got {start_step}")
        return map(self._batch, self._rows(batch_size, length, seed, start_step))

    def _rows(self, batch_size: int, length: int, seed: int, start_step: int) -> Iterator[list[Piece]]:
        pieces = [piece for number, text in enumerate(self.texts) for piece in _pieces(number, len(text), length)]
        steps = -(-len(pieces) // batch_size)
        epoch, order = None, []
        for step in count(start_step):
            if step // steps != epoch:
                epoch = step // steps
                order = _order([len(piece) for piece in pieces], batch_size, np.random.default_rng([seed, epoch]))
            yield [pieces[i] for i in order[step % steps]]

    def _batch(self, rows: list[Piece]) -> tuple[Tensor, ...]:
        tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
        mask = torch.zeros_like(tokens, dtype=torch.bool)
        for row, piece in enumerate(rows):
            tokens[row, : len(piece)] = torch.from_numpy(self.texts[piece.text][piece.start : piece.stop].astype(np.int64))
            mask[row, : len(piece)] = True
        return tokens, mask


@dataclass(frozen=True)
class Piece:
    """Tokens start … stop - 1 of the text of this number."""

    text: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def _pieces(number: int, size: int, length: int) -> list[Piece]:
    """A text in equal pieces of at most `length` tokens; the first ones have one more where that cannot be."""
    n = -(-size // length)
    ends = np.cumsum([size // n + (i < size % n) for i in range(n)]).tolist()
    return [Piece(number, start, stop) for start, stop in zip([0, *ends], ends)]


class Texts(Batched):
    """The texts of a harvest.

    Args:
        directory: where `harvest` wrote; may still be growing, what is there now is read.
        split: "train" or "held_out": a twentieth of the texts, chosen by a hash of shard and row, so that a longer harvest moves none.

    Attributes:
        texts: arrays of ids, prompt and generated text.
        prompt_lengths, kinds (indices into KINDS), dropped, temperatures: one for each text.
        places: for each text where it and its features lie.

    Raises:
        ValueError: on another split, or if there is no text.
    """

    def __init__(self, directory: str | Path, split: str = "train"):
        if split not in SPLITS:
            raise ValueError(f"expected a split of {SPLITS}, got {split!r}")
        self.texts: list[np.ndarray] = []
        self.prompt_lengths, self.kinds, self.dropped, self.temperatures = [], [], [], []
        self.places: list[Place] = []
        for path in sorted(Path(directory).glob("shard-*.safetensors")):
            shard, before = read_shard(path), 0
            for row, text in enumerate(shard.texts):
                if is_held_out(f"{path.stem} {row}", VALIDATION) == (split == "held_out"):
                    self.texts.append(text)
                    self.prompt_lengths.append(shard.prompt_lengths[row])
                    self.kinds.append(shard.kinds[row])
                    self.dropped.append(shard.dropped[row])
                    self.temperatures.append(shard.about["temperature"])
                    self.places.append(Place(path, before))
                before += len(text) - 1  # the last one has none
        if not self.texts:
            raise ValueError(f"{directory} has no texts ({split}); `harvest` writes them there")

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def total_tokens(self) -> int:
        return sum(map(len, self.texts))


@dataclass(frozen=True)
class Place:
    """Of a text: its shard, and the row of the shard's features at which its own begin."""

    shard: Path
    row: int


def _order(lengths: list[int], batch_size: int, random: np.random.Generator) -> list[np.ndarray]:
    """The batches of an epoch, as indices: all shuffled, sorted by length within pools of 32 batches, and the batches shuffled."""
    shuffled = random.permutation(len(lengths))
    shuffled = np.resize(shuffled, -(-len(lengths) // batch_size) * batch_size)  # repeats the first ones at the end
    batches = []
    for at in range(0, len(shuffled), 32 * batch_size):
        pool = shuffled[at : at + 32 * batch_size]
        pool = pool[np.argsort(np.array(lengths)[pool], kind="stable")]
        batches += np.split(pool, len(pool) // batch_size)
    return [batches[i] for i in random.permutation(len(batches))]
