"""A language model of one attention layer, small enough to read in a minute: the fixture of chapter 05.

Its next token depends on every cached slot, on the slots' order and on the positions, so that a wrong slot changes the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

VOCABULARY, HEADS, HEAD_DIM, MAX_LENGTH = 13, 2, 4, 64


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class TinyAttention:
    """model(tokens, cache) → logits (T, V) in float64, one row per token: row t is the distribution after token t.

    Appends the keys and values of the T tokens to the cache, then reads all of it. Token t sees every slot up to its own.
    """

    def __init__(self, seed: int):
        random = torch.Generator().manual_seed(seed)
        width = HEADS * HEAD_DIM

        def matrix(*shape: int) -> Tensor:
            return torch.randn(shape, generator=random, dtype=torch.float64).to(device())

        self.embedding, self.position = matrix(VOCABULARY, width), matrix(MAX_LENGTH, width)
        self.query, self.key, self.value, self.head = (matrix(width, n) for n in (width, width, width, VOCABULARY))

    def __call__(self, tokens: Sequence[int], cache: Any) -> Tensor:
        start, T = cache.length, len(tokens)
        x = self.embedding[list(tokens)] + self.position[start : start + T]  # (T, width)
        q, k, v = ((x @ w).view(T, HEADS, HEAD_DIM).transpose(0, 1) for w in (self.query, self.key, self.value))
        cache.append(k, v)  # (HEADS, T, HEAD_DIM) each
        keys, values = cache.read()  # (HEADS, start + T, HEAD_DIM) each
        scores = q @ keys.transpose(1, 2) / HEAD_DIM**0.5
        slot, row = torch.arange(keys.shape[1], device=keys.device), torch.arange(T, device=keys.device)
        scores = scores.masked_fill(slot > start + row[:, None], -torch.inf)
        mixed = (scores.softmax(-1) @ values).transpose(0, 1).reshape(T, -1)
        return (x + 2 * mixed) @ self.head


class PlainCache:
    """Keys and values in lists that grow by concatenation: slow and plainly right. What the student's cache is compared with."""

    def __init__(self) -> None:
        self.length, self._k, self._v = 0, None, None

    def append(self, k: Tensor, v: Tensor) -> None:
        self._k = k if self._k is None else torch.cat([self._k, k], dim=1)
        self._v = v if self._v is None else torch.cat([self._v, v], dim=1)
        self.length = self._k.shape[1]

    def read(self) -> tuple[Tensor, Tensor]:
        return self._k, self._v


def prefill(model: Any, tokens: Sequence[int]) -> Tensor:
    """The logits (V,) after `tokens`, from an empty cache: what any cached computation must equal."""
    return model(tokens, PlainCache())[-1]


def greedy(model: Any, tokens: Sequence[int], count: int) -> list[int]:
    """The next `count` tokens of greedy decoding without any cache."""
    text = list(tokens)
    for _ in range(count):
        text.append(int(prefill(model, text).argmax()))
    return text[len(tokens) :]
