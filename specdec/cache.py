"""KVCache: keys and values in tensors that are allocated once. Rolling back changes a number, not a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.config import Config


class CacheFull(ValueError):
    """The cache has no room for the tokens; nothing was written."""


class KVCache:
    """Keys and values of one batch.

    Args:
        config: the model's shape: layers, kv_heads, head_dim.
        batch_size: B.
        max_length: slots per row.
        device, dtype: of the tensors; the model's own.
    """

    def __init__(
        self,
        config: Config,
        batch_size: int,
        max_length: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        if batch_size < 1 or max_length < 1:
            raise ValueError(f"batch_size and max_length must be >= 1, got {batch_size} and {max_length}")
        self.max_length = max_length
        shape = (config.layers, batch_size, config.kv_heads, max_length, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        # Per layer, because a forward fills the layers one after the other.
        self._lengths = [0] * config.layers

    @property
    def length(self) -> int:
        """Slots that every layer has filled."""
        return self._lengths[-1]

    @property
    def bytes(self) -> int:
        return 2 * self.keys.numel() * self.keys.element_size()

    def require(self, new_tokens: int) -> None:
        """Raises CacheFull if `new_tokens` more slots are not free."""
        if self.length + new_tokens > self.max_length:
            raise CacheFull(
                f"the cache holds {self.max_length} slots, {self.length} are filled, and {new_tokens} more were asked for"
            )

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes k, v (B, kv_heads, T, head_dim) behind the layer's last slot; returns `read(layer)`.

        Raises:
            CacheFull: if T slots are not free; nothing is written then.
            ValueError: if k or v has another shape.
        """
        _, B, heads, _, dim = self.keys.shape
        start, T = self._lengths[layer], k.shape[-2]
        if k.shape != v.shape or k.shape != (B, heads, T, dim):
            raise ValueError(f"k and v must be {(B, heads, 'T', dim)}, got {tuple(k.shape)} and {tuple(v.shape)}")
        if start + T > self.max_length:
            raise CacheFull(f"the cache holds {self.max_length} slots, {start} are filled, and {T} more were asked for")
        self.keys[layer, :, :, start : start + T] = k
        self.values[layer, :, :, start : start + T] = v
        self._lengths[layer] = start + T
        return self.read(layer)

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Views of the filled slots, (B, kv_heads, length, head_dim) each."""
        filled = self._lengths[layer]
        return self.keys[layer, :, :, :filled], self.values[layer, :, :, :filled]

    def rollback(self, length: int) -> None:
        """Forgets every slot from `length` on. Nothing is copied or cleared: the slots are overwritten when they are next used.

        Raises:
            ValueError: if length is negative or above the present length.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"length must lie in [0, {self.length}], got {length}")
        self._lengths = [length] * len(self._lengths)

    def keep(self, slots: Sequence[int] | Tensor) -> None:
        """Keeps the accepted path of a tree: slot slots[i] moves to slots[0] + i, and the length becomes slots[0] + len(slots).

        Slots before slots[0] stay. One gather in all layers at once.

        Args:
            slots: absolute slot numbers, strictly increasing and below `length`.

        Raises:
            ValueError: if they are not.
        """
        chosen = [int(slot) for slot in slots]
        if not chosen or chosen[0] < 0 or chosen[-1] >= self.length or any(a >= b for a, b in zip(chosen, chosen[1:])):
            raise ValueError(f"slots must be strictly increasing within [0, {self.length}), got {chosen}")
        start, end = chosen[0], chosen[0] + len(chosen)
        if chosen[-1] != end - 1:  # else they lie side by side already
            index = torch.tensor(chosen, device=self.keys.device)
            self.keys[:, :, :, start:end] = self.keys.index_select(3, index)
            self.values[:, :, :, start:end] = self.values.index_select(3, index)
        self.rollback(end)
