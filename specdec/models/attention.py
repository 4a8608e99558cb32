"""Ways to attend to the cache. They compute the same; they differ in what they read and in what they promise."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.cache import KVCache


class View(Protocol):
    """How the new tokens of one forward meet those before them; built once, used by every layer."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (B, heads, T, head_dim), k and v (B, kv_heads, T, head_dim) → (B, heads, T, head_dim)."""
        ...


class CacheView(View):
    """The new tokens' keys and values go into a cache. All that a layer needs of the view is in tensors, so that it can be traced
    (`specdec.models.traced`).

    Args:
        keys, values: (layers, B, kv_heads, S, head_dim), the cache's own, as far as they are read.
        others: what else this kind of view needs, in an order of its own.
    """

    def __init__(self, keys: Tensor, values: Tensor, *others: Tensor):
        self.keys, self.values, self.others = keys, values, others

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """`type(view)(*view.tensors)` is the same view."""
        return self.keys, self.values, *self.others


def view(cache: KVCache, T: int, mask: Tensor | None, fixed: bool) -> CacheView:
    """Takes the next T slots of the cache, and returns the cheapest view that is right. They count as filled from now on.

    Args:
        mask: (T, M) or (B, T, M) bool with M >= T: whom the new tokens see among the last M slots, their own T included. They see
            every slot before those. None: causal.
        fixed: one shape for every forward, see `Fixed`.

    Raises:
        CacheFull: if T slots are not free. The cache stays as it is.
        ValueError: if the mask does not fit, or a fixed shape is asked for several rows. The cache stays as it is.
    """
    cache.require(T)
    if mask is not None:
        _check(mask, cache, T)
    seen = _view(cache, T, mask, fixed)
    cache.advance(T)
    return seen


def _view(cache: KVCache, T: int, mask: Tensor | None, fixed: bool) -> CacheView:
    if fixed:
        return Fixed.over(cache, T, mask)
    if cache.is_ragged or (mask is not None and mask.dim() == 3):
        return Ragged.over(cache, T, mask)
    if mask is None and (T == 1 or cache.length == 0):
        return (Alone if T == 1 else Prompt)(*_dense(cache, T))
    return Dense.over(cache, T, mask)


def _check(mask: Tensor, cache: KVCache, T: int) -> None:
    B, most, shape = cache.batch_size, T + min(cache.lengths), tuple(mask.shape)
    if len(shape) not in (2, 3) or shape[-2] != T or not T <= shape[-1] <= most or shape[:-2] not in ((), (1,), (B,)):
        raise ValueError(f"mask must be ({T}, M) or ({B}, {T}, M) with {T} <= M <= {most}, got {shape}")
    if mask.dtype != torch.bool:  # attention would add numbers to its scores
        raise ValueError(f"mask must be bool, True where a token may look, got {mask.dtype}")


class Alone(CacheView):
    """All rows have the same length, and one new token each, which sees all: the keys are the filled slots, and nothing behind them
    is read."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._attend(layer, q, k, v)

    def _attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, **masked) -> Tensor:
        new_keys, new_values = self.others[:2]
        new_keys[layer].copy_(k)
        new_values[layer].copy_(v)
        return F.scaled_dot_product_attention(q, self.keys[layer], self.values[layer], enable_gqa=True, **masked)


class Prompt(Alone):
    """The cache was empty: a flag says who sees whom."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._attend(layer, q, k, v, is_causal=True)


class Dense(Alone):
    """All rows have the same length, and the same mask."""

    @classmethod
    def over(cls, cache: KVCache, T: int, mask: Tensor | None) -> Dense:
        L, device = cache.length, cache.keys.device
        among = torch.ones(T, T, dtype=torch.bool, device=device).tril() if mask is None else mask.to(device)
        added = torch.zeros(T, L + T, dtype=cache.keys.dtype, device=device)
        added[:, L + T - among.shape[-1] :].masked_fill_(~among, -torch.inf)
        return cls(*_dense(cache, T), added)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._attend(layer, q, k, v, attn_mask=self.others[2])


def _dense(cache: KVCache, T: int) -> tuple[Tensor, ...]:
    """Keys and values up to the new tokens, and the slots of these alone."""
    L, both = cache.length, (cache.keys, cache.values)
    return *(x[..., : L + T, :] for x in both), *(x[..., L : L + T, :] for x in both)


class Ragged(CacheView):
    """Rows of different lengths, or with different trees: slots and mask are per row."""

    @classmethod
    def over(cls, cache: KVCache, T: int, mask: Tensor | None) -> Ragged:
        filled, slots = cache.length + T, _slots(cache, T)
        added = _bias(_visible(cache, slots, mask)[:, None, :, :filled], cache)  # (B, 1, T, filled)
        return cls(cache.keys[..., :filled, :], cache.values[..., :filled, :], _rows(slots), slots, added)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, slots, added = self.others
        keys, values = _write(self, layer, rows, slots, k, v)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=added, enable_gqa=True)


class Fixed(CacheView):
    """One shape for every forward, and every key at one place in it, so that a token's logits are the same bits in every forward.

    Rounding depends on the order in which a kernel adds, that is on the shape of its operands and on where in them a number lies.
    A token at position n sees the positions 0 … n. The last T of them, the only ones that can be part of a tree, are gathered row
    by row in the order of their positions; all before them were committed long ago, and lie in the slots of their positions. So a
    branch of a tree and the same text decoded token by token add the same numbers in the same order.

    Written as plain matrix products: the fused kernel's rounding depends on the thread that a row falls to (MKL with buffers of
    another alignment). Nothing comes from the host, so that a forward can be captured in a CUDA graph and replayed at another length.
    """

    @classmethod
    def over(cls, cache: KVCache, T: int, mask: Tensor | None) -> Fixed:
        if cache.batch_size != 1:
            raise ValueError(f"a forward of fixed shape takes one request, got a batch of {cache.batch_size}")
        slots = _slots(cache, T)
        visible = _visible(cache, slots, mask)[0]  # (T, S)
        every = torch.arange(cache.max_length, device=visible.device)
        # The last T visible slots of each row in ascending order, -1 in front where there are fewer.
        tail = (visible * (every + 1)).topk(min(T, cache.max_length)).values.flip(-1) - 1  # (T, T)
        hidden = torch.cat([~visible | (every >= tail[:, :1]), tail < 0], dim=-1)  # (T, S + T)
        # hidden: over (kv_heads, T, group, S + T)
        return cls(cache.keys, cache.values, _rows(slots), slots, tail.clamp_min(0), hidden[None, :, None])

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, slots, tail, hidden = self.others
        heads, T, kv_heads, dim = q.shape[1], q.shape[2], k.shape[1], q.shape[-1]
        keys, values = (x[0] for x in _write(self, layer, rows, slots, k, v))  # (kv_heads, S, head_dim)
        if q.dtype in (torch.bfloat16, torch.float16):
            q, keys, values = q.float(), keys.float(), values.float()
        S = keys.shape[1]
        q = q[0].view(kv_heads, -1, T, dim).transpose(1, 2) * int(dim) ** -0.5  # (kv_heads, T, group, head_dim)
        tail_keys, tail_values = keys[:, tail], values[:, tail]  # (kv_heads, T, T, head_dim)
        shared = (q.flatten(1, 2) @ keys.mT).view(*q.shape[:3], S)
        weights = torch.cat([shared, q @ tail_keys.mT], dim=-1).masked_fill(hidden, -torch.inf).softmax(-1)
        y = (weights[..., :S].flatten(1, 2) @ values).view(q.shape) + weights[..., S:] @ tail_values
        return y.transpose(1, 2).reshape(1, heads, T, dim).to(k.dtype)


def _write(view: CacheView, layer: int, rows: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """k, v (B, kv_heads, T, head_dim) into the slots (B, T); returns all of the layer's that the view reads."""
    view.keys[layer].transpose(1, 2)[rows, slots] = k.transpose(1, 2)
    view.values[layer].transpose(1, 2)[rows, slots] = v.transpose(1, 2)
    return view.keys[layer], view.values[layer]


def _rows(slots: Tensor) -> Tensor:
    """(B, 1), what goes with slots (B, T) as an index."""
    return torch.arange(len(slots), device=slots.device).unsqueeze(-1)


def _bias(visible: Tensor, cache: KVCache) -> Tensor:
    """What attention adds to its scores: it would make this of a bool mask in every layer anew."""
    return torch.where(visible, 0.0, -torch.inf).to(cache.keys.dtype)


def _slots(cache: KVCache, T: int) -> Tensor:
    """(B, T): the new tokens' slots."""
    return cache.starts[:, None] + torch.arange(T, device=cache.starts.device)


def _visible(cache: KVCache, slots: Tensor, mask: Tensor | None) -> Tensor:
    """(B, T, S): who sees which slot of the whole cache."""
    every = torch.arange(cache.max_length, device=slots.device)
    B, T = slots.shape
    if mask is None:
        return every <= slots[..., None]
    M = mask.shape[-1]
    first = slots[:, :1] + T - M  # (B, 1), the first slot that the mask speaks of
    visible = (every < first)[:, None].expand(B, T, -1).clone()
    columns = (first + torch.arange(M, device=slots.device))[:, None].expand(B, T, M)
    return visible.scatter_(-1, columns, mask.to(slots.device).expand(B, T, M))
