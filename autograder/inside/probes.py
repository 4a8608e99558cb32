"""What a check must see of an object that stays on the student's side: whether tensors moved, and NaN where nobody should look.

In a notebook the checks call these functions directly. Through the judge they run beside the student's code, and their answers are
only as honest as that code lets them be; the numbers that a cache returns are looked at on the judge's side.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .plain import shown

_places: dict[int, tuple[Any, list[Tensor]]] = {}


def place(cache: Any) -> None:
    """Remembers where keys and values lie. They are kept: a new tensor might lie where one that is gone has been."""
    _places[id(cache)] = (cache, [cache.keys, cache.values])


def has_moved(cache: Any) -> bool:
    """Whether they are others than at the last `place`."""
    _, before = _places[id(cache)]
    return any(now.data_ptr() != old.data_ptr() for now, old in zip((cache.keys, cache.values), before))


def read_copies(cache: Any) -> bool:
    """Whether read() returns other memory than the cache's own."""
    return any(part.data_ptr() != own.data_ptr() for part, own in zip(cache.read(), (cache.keys, cache.values)))


def poison(cache: Any) -> None:
    """NaN into every slot that is not in use."""
    with torch.inference_mode():  # which may write wherever the cache was made: under it, or with gradients
        for tensor in (cache.keys, cache.values):
            tensor[:, int(cache.length) :] = torch.nan


def describe(cache: Any, name: str) -> tuple[str, str]:
    """(type of the device on which the tensor `cache.name` is, or nothing if it is none; what it is)"""
    value = getattr(cache, name, None)
    return (value.device.type, "") if isinstance(value, Tensor) else ("", shown(value, 100))
