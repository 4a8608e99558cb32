"""KVCache: keys and values in tensors that are allocated once. Rolling back changes a number, not a tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specdec.config import Config, check_size
from specdec.device import floating_dtype, upload


class CacheFull(ValueError):
    """The cache has no room for the tokens; nothing was written."""


class KVCache:
    """Keys and values of one batch. Every row has a length of its own.

    Args:
        config: the model's shape: layers, kv_heads, head_dim.
        batch_size: B.
        max_length: slots per row.
        device, dtype: of the tensors; the model's own.

    Raises:
        ValueError: if a size is not a whole number >= 1, or `config` or `dtype` is none.
    """

    def __init__(
        self,
        config: Config,
        batch_size: int,
        max_length: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str = torch.float32,
    ):
        if not isinstance(config, Config):
            raise ValueError(f"config must be a Config, such as model.config, got {config!r:.80}")
        check_size("batch_size", batch_size)
        check_size("max_length", max_length)
        dtype = floating_dtype(dtype)
        self.max_length = max_length
        shape = (config.layers, batch_size, config.kv_heads, max_length, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.starts = torch.zeros(batch_size, device=device, dtype=torch.long)
        # Per layer, because a forward fills the layers one after the other.
        self._lengths = np.zeros((config.layers, batch_size), dtype=np.int64)

    @property
    def lengths(self) -> list[int]:
        """Slots of each row that every layer has filled. `starts` (B,) is the same on the device."""
        return self._lengths[-1].tolist()

    @property
    def length(self) -> int:
        """Slots that the longest row has filled."""
        return max(self.lengths)

    @property
    def is_ragged(self) -> bool:
        """Whether the rows have different lengths."""
        return len(set(self.lengths)) > 1

    @property
    def batch_size(self) -> int:
        return self.keys.shape[1]

    @property
    def bytes(self) -> int:
        return 2 * self.keys.numel() * self.keys.element_size()

    def require(self, new_tokens: int) -> None:
        """Raises CacheFull if `new_tokens` more slots are not free in every row."""
        if self.length + new_tokens > self.max_length:
            raise CacheFull(
                f"the cache holds {self.max_length} slots, {self.length} are filled, and {new_tokens} more were asked for"
            )

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes k, v (B, kv_heads, T, head_dim) behind the layer's last slot; returns `read(layer)`.

        Raises:
            CacheFull: if T slots are not free; nothing is written then.
            ValueError: if k or v has another shape, or the rows have different lengths (`write` takes those).
        """
        _, B, heads, _, dim = self.keys.shape
        lengths, T = self._lengths[layer].tolist(), k.shape[-2]
        start = lengths[0]
        if k.shape != v.shape or k.shape != (B, heads, T, dim):
            raise ValueError(f"k and v must be {(B, heads, 'T', dim)}, got {tuple(k.shape)} and {tuple(v.shape)}")
        if lengths.count(start) != B:
            raise ValueError(f"append needs rows of one length, got {lengths}")
        if start + T > self.max_length:
            raise CacheFull(f"the cache holds {self.max_length} slots, {start} are filled, and {T} more were asked for")
        self.keys[layer, :, :, start : start + T] = k
        self.values[layer, :, :, start : start + T] = v
        self._lengths[layer] += T
        if layer == len(self._lengths) - 1:
            self.starts += T
        return self.read(layer)

    def advance(self, T: int) -> None:
        """T more slots of every row count as filled, in all layers: a forward is about to write them (`specdec.models.attention`)."""
        self._lengths += T
        self.starts += T

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Views of the filled slots, (B, kv_heads, length, head_dim) each."""
        filled = max(self._lengths[layer].tolist())
        return self.keys[layer, :, :, :filled], self.values[layer, :, :, :filled]

    def rollback(self, length: int | Sequence[int]) -> None:
        """Forgets every slot from `length` on (one for all rows, or one a row).

        Nothing is copied or cleared: the slots are overwritten when they are next used.

        Raises:
            ValueError: if a length is negative or above the present one.
        """
        wanted = list(length) if isinstance(length, Sequence) else [length] * self.batch_size
        for new, present in zip(wanted, self.lengths, strict=True):
            if not 0 <= new <= present:
                raise ValueError(f"length must lie in [0, {present}], got {new}")
        self._lengths[:] = wanted
        if len(set(wanted)) == 1:
            self.starts.fill_(wanted[0])
        else:
            for row, new in enumerate(wanted):
                self.starts[row].fill_(new)

    def keep(self, slots: Sequence[int] | Tensor) -> None:
        """Keeps the accepted path of a tree: slot slots[i] moves to slots[0] + i, and the length becomes slots[0] + len(slots).

        Slots before slots[0] stay. One gather in all layers at once.

        Args:
            slots: absolute slot numbers, strictly increasing and below `length`; the same in every row.

        Raises:
            ValueError: if they are not.
        """
        chosen = [int(slot) for slot in slots]
        if not chosen or chosen[0] < 0 or chosen[-1] >= self.length or any(a >= b for a, b in zip(chosen, chosen[1:])):
            raise ValueError(f"slots must be strictly increasing within [0, {self.length}), got {chosen}")
        if chosen[-1] - chosen[0] != len(chosen) - 1:  # else they lie side by side already
            source = upload(chosen, self.keys.device).expand(self.batch_size, -1)
            self.move(source, source[:, :1])
        self.rollback(chosen[0] + len(chosen))

    def move(self, slots: Tensor, start: Tensor) -> None:
        """Copies slots (B, n) onto the n slots from start (B, 1) on, in all layers at once. No length changes.

        Both live on the cache's device, and nothing is copied to the host.
        """
        target = start + torch.arange(slots.shape[-1], device=slots.device)
        rows = torch.arange(len(slots), device=slots.device).unsqueeze(-1)
        for tensor in (self.keys.transpose(2, 3), self.values.transpose(2, 3)):  # (layers, B, slots, kv_heads, head_dim)
            tensor[:, rows, target] = tensor[:, rows, slots]

    def row(self, index: int) -> KVCache:
        """The cache of one row alone. It shares the tensors and the row's length."""
        view = copy.copy(self)
        one = slice(index, index + 1)
        view.keys, view.values, view.starts = self.keys[:, one], self.values[:, one], self.starts[one]
        view._lengths = self._lengths[:, one]
        return view

    def drop(self, index: int) -> None:
        """Ends a row: the last row takes its place, and the batch is one row smaller. No memory is allocated or freed."""
        last = self.batch_size - 1
        if index != last:
            self.keys[:, index], self.values[:, index] = self.keys[:, last], self.values[:, last]
            self.starts[index] = self.starts[last]
            self._lengths[:, index] = self._lengths[:, last]
        self.keys, self.values, self.starts = self.keys[:, :last], self.values[:, :last], self.starts[:last]
        self._lengths = self._lengths[:, :last]
