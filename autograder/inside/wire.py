"""Frames of plain data over a socket: the only thing that passes between the judge and a student's code.

A frame is two little-endian numbers of 32 bits, the lengths of a JSON text and of the raw bytes behind it, then both. JSON carries
None, booleans, numbers, text and lists as themselves; everything else is an object with one key:

    {"int": "0x…"}            a whole number beyond 2^53
    {"float": "nan"}          nan, inf, -inf
    {"tuple": […]}            {"dict": [[key, value], …]}
    {"array": [library, dtype, shape, start, end]}     numpy or torch; its bytes are that part of the raw ones
    {"dtype": name}           torch's
    {"ref": n}                object n of the sender, which stays where it is
    {"own": n}                object n of the receiver

Nothing is unpickled, and nothing is looked up by name. What does not fit this is Malformed.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import sys
from collections.abc import Callable
from math import isfinite
from typing import Any

from . import plain

HEADER = struct.Struct("<II")
MOST, MOST_TEXT = 64 * 2**20, 8 * 2**20  # bytes of a frame, and of its JSON
MOST_PARTS = 3 * plain.MOST_PARTS  # values and lists of a frame: parsed, one takes 100 bytes where its text takes two
WHOLE = 2**53  # below it JSON carries a whole number as itself


class Malformed(plain.NotPlain):
    """What came is no frame, or what was to be sent is no plain data."""


class Closed(ConnectionError):
    """The other side is gone."""


class Connection:
    """One end.

    export(object) → n: how objects that are no plain data are named; raises Malformed if they may not be sent.
    own(n), remote(n): the receiver's own object n, and what stands for the sender's.
    reduced(value): what is sent in place of a value of another type; the judge's side sends exact types alone.
    """

    def __init__(
        self, end: socket.socket, export: Callable[[Any], dict], own: Callable[[int], Any], remote: Callable[[int], Any],
        reduced: Callable[[Any], Any] = lambda value: value,
    ):  # fmt: skip
        self._end, self._export, self._own, self._remote, self._reduced = end, export, own, remote, reduced
        self._come = bytearray()  # a frame that has begun to come

    def send(self, message: Any) -> None:
        raw = bytearray()
        text = json.dumps(self._plain(message, raw), allow_nan=False, separators=(",", ":")).encode()
        if len(text) > MOST_TEXT or len(text) + len(raw) > MOST or _parts(text) > MOST_PARTS:
            raise Malformed(f"{(len(text) + len(raw)) / 2**20:.0f} MiB in {_parts(text):,} parts: too much for one answer")
        try:
            self._end.sendall(HEADER.pack(len(text), len(raw)) + text + raw)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self) -> Any:
        """Raises Malformed, Closed, or TimeoutError as the socket's timeout has it; after that it can be called again."""
        self._read(HEADER.size)
        length, extra = HEADER.unpack_from(self._come)
        if length > MOST_TEXT or length + extra > MOST:
            raise Malformed(f"a frame of {length + extra} bytes")
        self._read(HEADER.size + length + extra)
        text, raw = self._come[HEADER.size : HEADER.size + length], self._come[HEADER.size + length :]
        self._come = bytearray()
        if _parts(text) > MOST_PARTS:
            raise Malformed(f"a frame of {_parts(text):,} parts")
        try:
            return self._value(json.loads(text, parse_constant=_refuse), raw)
        except Malformed:
            raise
        except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError) as error:
            raise Malformed(f"{type(error).__name__}: {error}"[:200]) from error

    def _read(self, size: int) -> None:
        """Until so much of the frame has come."""
        while len(self._come) < size:
            try:
                data = self._end.recv(min(size - len(self._come), 2**20))
            except ConnectionResetError as error:
                raise Closed from error
            if not data:
                raise Closed
            self._come += data

    def _plain(self, value: Any, raw: bytearray) -> Any:
        """Exact types only: what merely calls itself a list or a number is an object like any other."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -WHOLE < value < WHOLE else {"int": _hex(value)}
        if kind is float:
            return value if isfinite(value) else {"float": repr(value)}
        if kind is list:
            return self._items(value, raw)
        if kind is tuple:
            return {"tuple": self._items(value, raw)}
        if kind is dict:
            return {"dict": [[self._plain(key, raw), self._plain(item, raw)] for key, item in value.items()]}
        torch = sys.modules.get("torch")
        if torch is not None and kind is torch.dtype:
            return {"dtype": str(value).removeprefix("torch.")}
        reduced = self._reduced(value)
        if reduced is not value:
            return self._plain(reduced, raw)
        array = _array_bytes(value)
        if array is None:
            return self._export(value)
        library, dtype, shape, data = array
        start = len(raw)
        raw += data
        return {"array": [library, dtype, list(shape), start, len(raw)]}

    def _items(self, values: list | tuple, raw: bytearray) -> list:
        """Numbers are most of what is sent: they are looked at without a call for each."""
        return [
            item
            if (type(item) is int and -WHOLE < item < WHOLE) or (type(item) is float and isfinite(item))
            else self._plain(item, raw)
            for item in values
        ]

    def _value(self, parsed: Any, raw: bytearray) -> Any:
        kind = type(parsed)
        if kind is list:
            return [self._value(item, raw) if type(item) in (list, dict) else item for item in parsed]
        if kind is not dict:
            return parsed
        if len(parsed) != 1:
            raise Malformed(f"an object of {len(parsed)} keys")
        ((kind, content),) = parsed.items()
        if kind == "tuple" and type(content) is list:
            return tuple(self._value(content, raw))
        if kind == "dict":
            return {self._value(key, raw): self._value(item, raw) for key, item in content}
        if kind == "int":
            return _number(content)
        if kind == "float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if kind == "array":
            return _array(raw, *content)
        if kind == "dtype" and content in plain.DTYPES:
            import torch

            return getattr(torch, content)
        if kind in ("ref", "own") and type(content) is int:
            return (self._remote if kind == "ref" else self._own)(content)
        raise Malformed(f"an object {kind!r:.40}")


def _parts(text: bytes | bytearray) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _refuse(constant: str) -> None:
    raise Malformed(f"{constant} in JSON")


def _hex(value: int) -> str:
    if value.bit_length() > plain.MOST_BITS:
        raise Malformed(f"a whole number of {value.bit_length()} bits; {plain.MOST_BITS} may be sent")
    return hex(value)


def _number(text: str) -> int:
    if type(text) is not str or len(text) > plain.MOST_BITS // 4 + 3:
        raise Malformed("a whole number that is too long")
    return int(text, 16)


def _array_bytes(value: Any) -> tuple[str, str, tuple, bytes] | None:
    """(library, dtype, shape, bytes) of exactly a numpy array, a numpy scalar or a tensor; None of anything else.

    Libraries that nobody has imported have no arrays; so a side without torch does without it.
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter):
        tensor = value.detach().cpu().contiguous().clone()
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in plain.DTYPES:
            raise Malformed(f"a tensor of dtype {dtype} cannot be sent")
        return "torch", dtype, tuple(tensor.shape), tensor.flatten().view(torch.uint8).numpy().tobytes()
    if numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
        array = numpy.asarray(value)
        if type(array) is not numpy.ndarray or array.dtype.name not in plain.DTYPES:
            raise Malformed(f"an array of dtype {array.dtype} cannot be sent")
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        return "numpy", array.dtype.name, array.shape, native.tobytes()
    return None


def _array(raw: bytearray, library: str, dtype: str, shape: list, start: int, end: int) -> Any:
    if not all(type(n) is int and 0 <= n <= MOST for n in (*shape, start, end)) or len(shape) > 8 or end > len(raw):
        raise Malformed(f"an array of shape {shape!r:.60}")
    if math.prod(shape) * plain.DTYPES[dtype] != end - start:
        raise Malformed(f"an array of shape {shape!r:.60} and dtype {dtype} in {end - start} bytes")
    data = raw[start:end]
    if library == "torch":
        import torch

        kind = getattr(torch, dtype)
        return torch.frombuffer(data, dtype=kind).reshape(shape) if data else torch.empty(shape, dtype=kind)
    if library != "numpy" or dtype == "bfloat16":
        raise Malformed(f"an array of {library!r:.20}")
    import numpy

    array = numpy.frombuffer(bytes(data), dtype=dtype).reshape(shape)
    return array if shape else array.item()  # a numpy scalar arrives as a number
