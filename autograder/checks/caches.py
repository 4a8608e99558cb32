"""A student's StaticCache seen from outside: all that the checks of chapter 05 know of its inside goes through these functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autograder.checks.core import Wrong, call, probe
from autograder.checks.tiny import HEAD_DIM, HEADS, device
from autograder.inside.plain import shown, whole

SLOTS = 24


@dataclass(frozen=True)
class Form:
    """What a cache is asked to be."""

    heads: int = HEADS
    slots: int = SLOTS
    head_dim: int = HEAD_DIM
    dtype: torch.dtype = torch.float64


def new_cache(kind: Callable, form: Form = Form()) -> Any:
    asked = form.heads, form.slots, form.head_dim, device(), form.dtype
    cache = call(kind, *asked, what="StaticCache(heads, max_length, head_dim, device, dtype)")
    if storage(cache, form)[0].shape[1] != form.slots:
        raise Wrong("the cache has another max_length", f"{form.slots} slots", f"{storage(cache, form)[0].shape[1]} slots")
    if length_of(cache) != 0:
        raise Wrong("a new cache is not empty", "cache.length is 0", str(length_of(cache)))
    return cache


def storage(cache: Any, form: Form = Form()) -> tuple[Tensor, Tensor]:
    """The two preallocated tensors, or copies of them where the cache is in another process; Wrong if they are not what is asked for."""
    found = []
    for name in ("keys", "values"):
        place, told = probe("describe", cache, name)
        asked = f"a tensor ({form.heads}, max_length, {form.head_dim}), {str(form.dtype)[6:]}, on {device()}"
        tensor = call(getattr, cache, name) if place else None
        if not isinstance(tensor, Tensor):
            raise Wrong(f"the cache has no tensor `{name}`", asked, str(told)[:100], "Allocate it once, in __init__.")
        shape = tuple(tensor.shape)
        if (shape[:1], shape[2:]) != ((form.heads,), (form.head_dim,)) or tensor.dtype != form.dtype or place != device():
            raise Wrong(f"`{name}` has the wrong shape, dtype or device", asked, f"{shape}, {tensor.dtype}, {place}")
        found.append(tensor)
    return found[0], found[1]


def method(cache: Any, name: str) -> Callable:
    found = call(getattr, cache, name, None)
    if not callable(found):
        raise Wrong(f"the cache has no method `{name}`", "append, read and rollback, as the task names them", "another name, or none")
    return found


def place(cache: Any) -> None:
    """Remembers where the cache's tensors are, for `has_moved`."""
    probe("place", cache)


def has_moved(cache: Any) -> bool:
    """Whether the cache's tensors are others than at the last `place`."""
    return bool(probe("has_moved", cache))


def poison(cache: Any) -> None:
    """NaN into every slot that is not in use."""
    probe("poison", cache)


def unchanged(cache: Any, before: list[Tensor]) -> bool:
    """Bit by bit: slots that were never written may hold NaN, which is not equal to itself."""
    return all(torch.equal(a.view(torch.int64), b.view(torch.int64)) for a, b in zip(before, storage(cache)))


def length_of(cache: Any) -> int:
    length = call(getattr, cache, "length", None)
    try:
        return whole(length)
    except ValueError:
        raise Wrong("the cache has no whole number `length`", "cache.length counts the slots in use", shown(length, 100)) from None


def read(cache: Any, form: Form = Form()) -> tuple[Tensor, Tensor]:
    answer = call(method(cache, "read"), what="cache.read()")
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2 and all(isinstance(part, Tensor) for part in answer)):
        raise Wrong("read() did not return the pair (keys, values)", "two tensors (heads, length, head_dim)", shown(answer, 150))
    for part in answer:
        used = (form.heads, length_of(cache), form.head_dim)
        if tuple(part.shape) != used:
            raise Wrong("read() returns other slots than those in use", f"shape {used}", f"{tuple(part.shape)}",
                        "Slice: self.keys[:, : self.length].")  # fmt: skip
    return answer[0], answer[1]


def read_copies(cache: Any) -> bool:
    """Whether read() returns other memory than the cache's own."""
    return bool(probe("read_copies", cache))
