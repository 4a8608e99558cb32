"""Three ways to attend to the cache. They compute the same; they differ in what they read and in what they promise."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.cache import KVCache


class View(Protocol):
    """How the new tokens of one forward are written to the cache and whom they see; built once, used by every layer."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (B, heads, T, head_dim), k and v (B, kv_heads, T, head_dim) → (B, heads, T, head_dim)."""
        ...


def view(cache: KVCache, T: int, mask: Tensor | None, fixed: bool) -> View:
    """The cheapest view that is right.

    Args:
        mask: (T, M) or (B, T, M) bool with M >= T: whom the new tokens see among the last M slots, their own T included. They see
            every slot before those. None: causal.
        fixed: one shape for every forward, see `Fixed`.
    """
    if mask is not None:
        _check(mask, cache, T)
    if fixed:
        return Fixed(cache, T, mask)
    return Ragged(cache, T, mask) if cache.is_ragged or (mask is not None and mask.dim() == 3) else Dense(cache, T, mask)


def _check(mask: Tensor, cache: KVCache, T: int) -> None:
    B, most, shape = cache.batch_size, T + min(cache.lengths), tuple(mask.shape)
    if len(shape) not in (2, 3) or shape[-2] != T or not T <= shape[-1] <= most or shape[:-2] not in ((), (1,), (B,)):
        raise ValueError(f"mask must be ({T}, M) or ({B}, {T}, M) with {T} <= M <= {most}, got {shape}")
    if mask.dtype != torch.bool:  # attention would add numbers to its scores
        raise ValueError(f"mask must be bool, True where a token may look, got {mask.dtype}")


class Dense:
    """All rows have the same length: the keys are the filled slots, and nothing behind them is read."""

    def __init__(self, cache: KVCache, T: int, mask: Tensor | None):
        L, device = cache.length, cache.keys.device
        self.cache, self.mask, self.causal = cache, None, False
        if mask is None and (T == 1 or L == 0):
            self.causal = T > 1  # the cheapest forms: nothing for one token, a flag for a plain prompt
        else:
            among = torch.ones(T, T, dtype=torch.bool, device=device).tril() if mask is None else mask.to(device)
            self.mask = torch.zeros(T, L + T, dtype=cache.keys.dtype, device=device)
            self.mask[:, L + T - among.shape[-1] :].masked_fill_(~among, -torch.inf)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = self.cache.append(layer, k, v)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, is_causal=self.causal, enable_gqa=True)


class Ragged:
    """Rows of different lengths, or with different trees: slots and mask are per row."""

    def __init__(self, cache: KVCache, T: int, mask: Tensor | None):
        self.cache, self.filled = cache, cache.length + T
        self.slots = _slots(cache, T)
        self.mask = _bias(_visible(cache, self.slots, mask)[:, None, :, : self.filled], cache)  # (B, 1, T, filled)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (x[:, :, : self.filled] for x in self.cache.write(layer, self.slots, k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, enable_gqa=True)


class Fixed:
    """One shape for every forward, and every key at one place in it, so that a token's logits are the same bits in every forward.

    Rounding depends on the order in which a kernel adds, that is on the shape of its operands and on where in them a number lies.
    A token at position n sees the positions 0 … n. The last T of them, the only ones that can be part of a tree, are gathered row
    by row in the order of their positions; all before them were committed long ago, and lie in the slots of their positions. So a
    branch of a tree and the same text decoded token by token add the same numbers in the same order.

    Written as plain matrix products: the fused kernel's rounding depends on the thread that a row falls to (MKL with buffers of
    another alignment). Nothing comes from the host, so that a forward can be captured in a CUDA graph and replayed at another length.
    """

    def __init__(self, cache: KVCache, T: int, mask: Tensor | None):
        if cache.batch_size != 1:
            raise ValueError(f"a forward of fixed shape takes one request, got a batch of {cache.batch_size}")
        self.cache, self.slots = cache, _slots(cache, T)
        visible = _visible(cache, self.slots, mask)[0]  # (T, S)
        every = torch.arange(cache.max_length, device=visible.device)
        # The last T visible slots of each row in ascending order, -1 in front where there are fewer.
        tail = (visible * (every + 1)).topk(min(T, cache.max_length)).values.flip(-1) - 1  # (T, T)
        self.tail = tail.clamp_min(0)
        hidden = torch.cat([~visible | (every >= tail[:, :1]), tail < 0], dim=-1)  # (T, S + T)
        self.hidden = hidden[None, :, None]  # over (kv_heads, T, group, S + T)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, T, kv_heads, dim = q.shape[1], q.shape[2], k.shape[1], q.shape[-1]
        keys, values = (x[0] for x in self.cache.write(layer, self.slots, k, v))  # (kv_heads, S, head_dim)
        if q.dtype in (torch.bfloat16, torch.float16):
            q, keys, values = q.float(), keys.float(), values.float()
        S = keys.shape[1]
        q = q[0].view(kv_heads, -1, T, dim).transpose(1, 2) * dim**-0.5  # (kv_heads, T, group, head_dim)
        tail_keys, tail_values = keys[:, self.tail], values[:, self.tail]  # (kv_heads, T, T, head_dim)
        shared = (q.flatten(1, 2) @ keys.mT).view(*q.shape[:3], S)
        weights = torch.cat([shared, q @ tail_keys.mT], dim=-1).masked_fill(self.hidden, -torch.inf).softmax(-1)
        y = (weights[..., :S].flatten(1, 2) @ values).view(q.shape) + weights[..., S:] @ tail_values
        return y.transpose(1, 2).reshape(1, heads, T, dim).to(k.dtype)


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
