"""The judge's side of a conversation with a student's code in another process.

A check gets a `RemoteFunction` where the student's function would be; calling it sends the arguments to the child and waits for the
answer. Models and random sources among the arguments stay here: the child is given numbers in their place, and asks. Only plain data comes
back, and whatever the child does, or does not, costs its own check alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from autograder.checks import core
from autograder.inside import wire
from autograder.inside.plain import without_addresses
from autograder.judging.clock import Clock, Limit
from autograder.judging.sandbox import Child, SandboxError

WAIT = 10.0  # seconds, where no limit is set
QUICK = 5.0  # seconds for an answer that costs the other side nothing
MOST_TEXT = 2000  # characters of anything that the student's code wrote


class Lost(core.Wrong):
    """The child is gone, or what it sends is no message: the rest of this check cannot be had."""


class RemoteFunction:
    """A function or class of the student's, by its name."""

    def __init__(self, session: Session, name: str):
        self.session, self.name = session, name

    def __call__(self, *args: Any) -> Any:
        return self.session.request("call", function=self.name, args=list(args))


class RemoteObject(core.Stays):
    """An object that stays on the student's side. Its plain attributes and its methods can be had; nothing else is."""

    def __init__(self, session: Session, number: int):
        self.__dict__.update(session=session, number=number)

    def __repr__(self) -> str:
        return "an object"  # without an address: a mark's text is the same in every run

    def __call__(self, *args: Any) -> Any:
        return self.session.request("call", function=self, args=list(args))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        answer = self.session.request("get", of=self, name=name)
        if type(answer) is dict and "method" in answer:
            return lambda *args: self.session.request("method", of=self, name=name, args=list(args))
        return answer["value"] if type(answer) is dict and "value" in answer else None

    def probe(self, name: str, *args: Any) -> Any:
        """`inside.probes`, beside the object."""
        return self.session.request("probe", name=name, args=[self, *args])


class Session:
    """One child, and the conversation with it: a `core.Host`. lost: why there is no conversation any more."""

    def __init__(self, child: Child):
        self._child, self.lost = child, ""
        self._wire = wire.Connection(child.socket, self._export, self._own, lambda number: RemoteObject(self, number))
        self._lent: list[Any] = []  # what the child may ask, while it answers
        self._clock = Clock(child.usage)
        self._limits: list[tuple[Limit, float]] = []  # with the seconds that a message tells, the same in every run
        self._began: Limit = self._clock.limit(0.0)
        self._late = 0.0  # the limit that was passed
        self._signal: BaseException | None = None  # what a check raised inside the student's code

    def request(self, what: str, **arguments: Any) -> Any:
        """Asks the child, and answers what it asks meanwhile.

        Raises:
            core.Elsewhere: what the student's code raised, as a subclass of the built-in exception where there is one.
            Lost, core.OutOfTime: and from then on at every further request.
        """
        marked = len(self._lent)
        self._send({"do": what, **arguments})
        try:
            while True:
                message = self._receive()
                if type(message) is not dict or len(message) not in (1, 3):
                    raise self._lose("the answer is no message")
                if "ask" in message:
                    self._answer(message)
                elif "done" in message:
                    return message["done"]
                elif "raised" in message:
                    self._raise_signal()
                    raise _exception(message["raised"])
                else:
                    self._raise_signal()
                    raise self._lose("the answer is no message")
        finally:
            del self._lent[marked:]

    def _raise_signal(self) -> None:
        found, self._signal = self._signal, None
        if found is not None:
            raise found

    def _answer(self, message: dict) -> None:
        """Calls one of our objects for the student's code."""
        try:
            number, method, args = message["ask"], message["method"], message["args"]
            target = self._lent[number] if type(number) is int and 0 <= number < len(self._lent) else None
            if method != "__call__":
                target = getattr(target, method) if method in getattr(target, "exposed", ()) else None
            if not callable(target) or type(args) is not list:
                raise TypeError("no such object, or no such method")
            reply = {"answer": target(*args)}
        except (Lost, core.OutOfTime):
            raise
        except core.Signal as signal:
            self._signal, reply = signal, {"stop": True}
        except Exception as error:  # of our models, at the student's arguments
            kinds = [kind for kind in type(error).__mro__ if kind in _BUILTIN.values()]
            reply = {"raise": [(kinds or [ValueError])[0].__name__, without_addresses(str(error)[:MOST_TEXT])]}
        self._send(reply)

    # -- one end of the wire -------------------------------------------------------------------------------------------

    def _send(self, message: dict) -> None:
        with self._watched():
            try:
                self._wire.send(message)
            except TimeoutError:  # half a message has gone, and nothing can follow it
                raise self._lose("your code does not read what it is sent") from None

    def _receive(self) -> Any:
        while True:
            with self._watched():
                return self._wire.receive()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Every wait for the child. A wait that lasted too long is no end yet: `_patience` looks at what the child did meanwhile."""
        if self.lost:
            raise core.OutOfTime(self._late) if self._late else self._lose(self.lost)
        self._child.socket.settimeout(self._patience())
        try:
            with self._clock.waiting():
                yield
        except TimeoutError:
            return
        except wire.Malformed as error:
            raise self._lose(f"what came is no plain data ({error})") from None
        except wire.Closed:
            raise self._lose("") from None

    def _patience(self) -> float:
        """Seconds to wait before the limits are looked at again."""
        left = WAIT
        for limit, told in self._limits:
            left = min(left, self._clock.left(limit))
            if left <= 0:
                self.lost, self._late = "late", told
                raise core.OutOfTime(told)
        return max(left, 0.05)

    def used(self) -> float:
        """Seconds that the child is charged in all."""
        return self._clock.used(self._began)

    def _lose(self, why: str) -> Lost:
        self.lost = why or "your code ended the Python process"
        return Lost(self.lost, "a result", "none", "Do not end the process, and return plain data: numbers, lists, arrays or tensors.")

    def _export(self, value: Any) -> dict:
        if isinstance(value, RemoteObject):
            return {"own": value.number}
        if not callable(value) and not getattr(value, "exposed", ()):
            raise TypeError(f"a check hands out a {type(value).__name__}, which is neither plain data nor callable nor exposed")
        self._lent.append(value)
        return {"ref": len(self._lent) - 1}

    def _own(self, number: int) -> Any:
        return self._lent[number]

    # -- as a host of checks -------------------------------------------------------------------------------------------

    faults = (SandboxError,)

    def answer(self, function: Callable, value: Any) -> Any:
        return value  # it came by the same rule, from the other side

    @contextlib.contextmanager
    def time_limit(self, seconds: float) -> Iterator[None]:
        with self._limited(self._clock.limit(seconds), seconds):
            yield

    @contextlib.contextmanager
    def budget(self, seconds: float, of: float) -> Iterator[None]:
        """What is left of so many seconds for several checks; sleep may use it up, too."""
        with self._limited(self._clock.limit(seconds, sleep=seconds), of):
            yield

    @contextlib.contextmanager
    def _limited(self, limit: Limit, told: float) -> Iterator[None]:
        self._limits.append((limit, told))
        try:
            yield
        finally:
            self._limits.pop()

    @contextlib.contextmanager
    def printing(self) -> Iterator[Callable[[], str]]:
        def printed() -> str:
            if self.lost:
                return ""
            try:
                with self.time_limit(QUICK):
                    return text(self.request("printed"))
            except (core.Signal, core.Elsewhere, core.OutOfTime):
                return ""

        yield printed

    def defined(self, name: str) -> bool:
        """Whether the student's code has a function or a class of this name."""
        with self.time_limit(QUICK):
            return self.request("defined", name=name) is True

    def steps(self, step: RemoteFunction, prefixes: Sequence[tuple], models: Any, k: int, rng: Any) -> tuple[list[list[int]], list]:
        """Many steps in one request, over lent models and numbers (`inside.lent`): their tokens, and the first odd result, if any."""
        number = {prefix: i for i, prefix in enumerate(dict.fromkeys(prefixes))}  # few differ
        asked = {"prefixes": list(number), "order": [number[prefix] for prefix in prefixes], "k": k, "rng": rng}
        lent = {"models": [models.target, models.draft], "rows": models.rows(list(number), k)}
        answer = self.request("steps", function=step.name, **asked, **lent)
        found = answer.get("found") if type(answer) is dict else None
        if type(found) is not list or not all(type(tokens) is list and all(type(t) is int for t in tokens) for tokens in found):
            raise self._lose("what came is no list of tokens")
        odd = answer.get("odd")
        return found, odd if type(odd) is list else []

    def branches(
        self, step: RemoteFunction, prefix: tuple, models: Any, k: int, script: Sequence[int], new: bool, cells: Sequence[int]
    ) -> dict[tuple[int, ...], tuple[Any, list, list, bool]]:
        """One step under a script (`inside.lent.Scripted`), and those behind it: {script: (its result, its log of draws, about how many
        prefixes it says that it asked each model, whether it stopped at a draw)}. new: the models are not those of the request before;
        cells: arguments of `lent.Cells`."""
        rows = models.rows([prefix], k) if new else None
        asked = {"models": [models.target, models.draft], "rows": rows, "script": list(script), "cells": list(cells)}
        answer = self.request("branches", function=step.name, prefix=prefix, k=k, **asked)
        found = {}
        for branch in answer if type(answer) is list else []:
            kinds = [type(part) for part in branch[2:]] if type(branch) is list else []
            if kinds != [list, list, bool] or [type(n) for n in branch[3]] != [int, int] or type(branch[0]) is not list:
                raise self._lose("what came is no branch of a step")
            found[tuple(branch[0])] = tuple(branch[1:])
        return found

    def close(self) -> int:
        return self._child.close()


_BUILTIN = {
    kind.__name__: kind
    for kind in (
        ValueError, TypeError, ZeroDivisionError, OverflowError, ArithmeticError, IndexError, KeyError, LookupError, AttributeError,
        NameError, NotImplementedError, RecursionError, RuntimeError, AssertionError, MemoryError, OSError, StopIteration,
    )
}  # fmt: skip


@cache
def _elsewhere(builtin: str) -> type[core.Elsewhere]:
    return type(f"Remote{builtin}", (core.Elsewhere, _BUILTIN[builtin]), {}) if builtin else core.Elsewhere


def _exception(described: Any) -> core.Elsewhere:
    if type(described) is not dict:
        described = {}
    bases = described.get("bases")
    base = next((b for b in bases if type(b) is str and b in _BUILTIN), "") if type(bases) is list else ""
    error = _elsewhere(base)(text(described.get("text")))
    error.kind = text(described.get("type"))[:80] or "an exception"
    error.line, error.stub = text(described.get("line"))[:400], text(described.get("stub"))[:80]
    return error


def text(value: Any) -> str:
    """Text that the student's side sent, fit to be written to a file, and without addresses, which differ from run to run."""
    return without_addresses(value[:MOST_TEXT].encode("utf-8", "replace").decode()) if type(value) is str else ""
