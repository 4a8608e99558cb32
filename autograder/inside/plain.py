"""What a student's code may answer with: one rule for the notebook and for the grader, so that a check sees the same values in both.

    None, text                                                   stay as they are
    booleans, numpy's too                                        become True or False
    whole numbers: `__index__`, numpy's, arrays without axes     become an int
    real numbers: `__float__`, as Fraction, Decimal, longdouble  become a float
    lists, tuples and their subclasses, other sequences          become a list or a tuple; a dictionary's subclass a dictionary
    arrays and tensors                                           stay; those of a type that is not in DTYPES become lists
    functions, and objects that are none of this                 stay where they are, and can be asked

What can be gone through and is none of these is NotPlain: a set, a generator, a map, bytes. So is a coroutine, and what has too many
parts. Nothing here imports numpy or torch: libraries that nobody has imported have no arrays.
"""

from __future__ import annotations

import math
import operator
import re
import reprlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator, Sequence
from itertools import islice
from typing import Any

MOST_PARTS, DEEPEST = 200_000, 32  # numbers and lists of an answer, and lists within lists
MOST_BITS = 4096  # of a whole number
MOST_SHOWN = 200  # characters of a value in a message
DTYPES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
_TOO_MANY = f"more than {MOST_PARTS:,} values at once"
ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


class NotPlain(ValueError):
    """An answer that a check cannot be given. The text goes on after "your code returned"."""


def plain(value: Any) -> Any:
    """An answer as a check sees it.

    Raises:
        NotPlain: saying what it is and what is wanted.
    """
    return _plain(value, DEEPEST, [MOST_PARTS])


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    value = shallow(value)
    kind = type(value)
    if kind not in (list, tuple, dict):
        return value
    left[0] -= 1 + len(value)
    if left[0] < 0:
        raise NotPlain(_TOO_MANY)
    if depth == 0:
        raise NotPlain(f"lists within lists, more than {DEEPEST} deep")
    if kind is dict:
        return {_plain(key, depth - 1, left): _plain(item, depth - 1, left) for key, item in value.items()}
    items = [item if type(item) is float else _plain(item, depth - 1, left) for item in value]
    return items if kind is list else tuple(items)


def shallow(value: Any) -> Any:
    """The rule for one value, not for what is in it.

    Raises:
        NotPlain: as `plain`.
    """
    kind = type(value)
    if value is None or kind in (bool, float, str, list, tuple, dict):
        return value
    if isinstance(value, int):
        return _whole(value)
    array = _array(value)
    if array is not value:
        return shallow(array)
    if is_array(value) or isinstance(value, type):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if hasattr(kind, "__index__"):
        return _whole(value)
    if hasattr(kind, "__float__"):
        return float(value)
    if isinstance(value, dict):
        return dict(dict.items(value))
    for base in (tuple, list):
        if isinstance(value, base):
            return base(base.__iter__(value))  # not its own, which may have no end
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        items = list(islice(value, MOST_PARTS + 1))
        if len(items) > MOST_PARTS:
            raise NotPlain(_TOO_MANY)
        return items
    _refuse_what_waits(value)
    if not callable(value) and (kind.__module__ == "builtins" or hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")):
        raise NotPlain(f"an object of type {kind.__name__:.60}, not numbers, lists of numbers, arrays or tensors")
    return value


def _refuse_what_waits(value: Any) -> None:
    """What a call leaves of a function that has not run yet."""
    if isinstance(value, Awaitable):
        if isinstance(value, Coroutine):
            value.close()  # or Python warns of it later, somewhere else
        raise NotPlain("a coroutine, as every function that begins with `async def`: write `def`")
    if isinstance(value, (Generator, AsyncGenerator)):
        raise NotPlain("a generator, which `yield` and `(… for … in …)` make: write `return`, of several values a list")


def _whole(value: Any) -> int:
    number = int(operator.index(value))
    if number.bit_length() > MOST_BITS:
        raise NotPlain(f"a whole number of {number.bit_length()} bits; {MOST_BITS} are allowed")
    return number


def is_array(value: Any) -> bool:
    """Whether it is exactly a numpy array or a tensor, of a type that DTYPES has."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter):
        return value.layout is torch.strided and str(value.dtype).removeprefix("torch.") in DTYPES
    return numpy is not None and type(value) is numpy.ndarray and value.dtype.name in DTYPES


def _array(value: Any) -> Any:
    """Arrays and tensors without axes as numbers, subclasses as what they are made from, other types as lists; the rest as it is."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.is_complex():
            raise NotPlain("complex numbers")
        if value.dim() == 0:
            return value.item()
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            value = value.as_subclass(torch.Tensor)
        return _listed(value if value.layout is torch.strided else value.to_dense())
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        if value.dtype.kind not in "biufOU":
            raise NotPlain(f"numbers of the type {value.dtype.name:.60}")
        if value.ndim == 0:
            return float(value) if value.dtype.kind == "f" else shallow(value.item())
        if type(value) is not numpy.ndarray:
            value = numpy.asarray(value)
        return _listed(value)
    return value


def _listed(array: Any) -> Any:
    """As a list, if it cannot be carried as it is."""
    if is_array(array):
        return array
    if math.prod(array.shape) > MOST_PARTS:
        raise NotPlain(_TOO_MANY)
    return array.tolist()


# -- what a check reads ------------------------------------------------------------------------------------------------


def number(value: Any) -> float:
    """A number; a tensor that holds one is as good.

    Raises:
        ValueError: for anything else, text that looks like a number and a whole number beyond every float among it.
    """
    if isinstance(value, (str, bytes, bytearray)):
        raise ValueError(f"{shown(value)} is text, not a number")
    try:
        return float(value)
    except Exception as error:  # OverflowError, torch's RuntimeError, and whatever an object's own `__float__` raises
        raise ValueError(f"{shown(value)} is no number") from error


def whole(value: Any) -> int:
    """A whole number; 3.0 is one.

    Raises:
        ValueError: for anything else.
    """
    if type(value) is int:
        return value
    found = number(value)
    if not found.is_integer():  # nor are nan and inf
        raise ValueError(f"{shown(value)} is no whole number")
    return int(found)


def vector(values: Any) -> list[float]:
    """The numbers of a list, a tuple, an array or a tensor.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(values, (str, bytes, bytearray, dict)):
        raise ValueError(f"{shown(values)} is no list")
    try:
        if len(values) > MOST_PARTS:
            raise ValueError(_TOO_MANY)
        parts = values.tolist() if is_array(values) and len(values.shape) == 1 else list(values)
    except TypeError as error:
        raise ValueError(f"{shown(values)} is no list") from error
    return [part if type(part) is float else number(part) for part in parts]


class _Short(reprlib.Repr):
    """Goes through a few parts of each list, and not deep."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxother = 3, MOST_SHOWN
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = self.maxarray = 24
        self.maxstring, self.maxlong = MOST_SHOWN, 60

    def repr_int(self, value: int, level: int) -> str:
        bits = value.bit_length()
        return f"a whole number of {bits} bits" if bits > MOST_BITS else super().repr_int(value, level)

    def repr_ndarray(self, value: Any, level: int) -> str:
        return self._part("array", value, level)

    def repr_Tensor(self, value: Any, level: int) -> str:
        return self._part("tensor", value, level)

    def _part(self, name: str, value: Any, level: int) -> str:
        few = value.reshape(-1)[: self.maxlist].tolist()
        return f"{name}({self.repr1(few, level - 1)})" if value.ndim == 1 else f"{name} of shape {tuple(value.shape)}"


_SHORT = _Short()


def shown(value: Any, most: int = MOST_SHOWN) -> str:
    """`repr`, short and the same in every run: a large value is not gone through, and no address stands in it."""
    try:
        return without_addresses(_SHORT.repr(value))[:most]
    except Exception as error:  # an object's own `__repr__`
        return f"<{type(value).__name__:.60}: {type(error).__name__:.60}>"


def without_addresses(text: str) -> str:
    return ADDRESS.sub("0x…", text)
