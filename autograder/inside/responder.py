"""Answers the judge's calls beside the student's code. Everything here is in the student's hands: the judge believes none of it.

The judge sends {"do": what, …} and gets {"done": value} or {"raised": …}. Meanwhile the student's code may ask for the judge's
objects, {"ask": n, "method": name, "args": […]}, which is answered by {"answer": value}, by {"raise": [type, text]} or by
{"stop": True}, when the judge has seen enough. Both may be nested: while it waits for an answer, the responder serves calls.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import inspect
import linecache
import operator
import socket
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from . import lent, plain, shell, wire
from .printed import FirstLines

CELL = "<cell "  # file names of the student's code
MOST_OBJECTS = 10_000
MOST_BRANCHES = 32  # of an enumeration in one answer
ONLY_FRAMES = 60  # of a traceback are looked through


class Stopped(BaseException):
    """The judge has seen enough. Not an Exception, so that `except Exception` lets it through."""


class Handle:
    """Something of the judge's. It can be called, and so can its methods; it has nothing else.

    The same type whether the judge hears each question (then `number` is its own) or has lent the answers in advance: nobody's code
    can be another one where it is listened to.
    """

    def __init__(self, ask: Callable[[str], Callable], number: int | None = None):
        self._ask, self._number, self._call, self._methods = ask, number, ask("__call__"), {}

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._methods:
            self._methods[name] = self._ask(name)
        return self._methods[name]


def lend(value: Any) -> Handle:
    """An object of this side as one of the judge's."""
    return Handle(lambda name: lambda *args: getattr(value, name)(*args))


class Instance:
    """What a class of the student's was called for: it stays here, even if it is a list or a number as well."""

    def __init__(self, value: Any):
        self.value = value


class Responder:
    def __init__(self, end: socket.socket):
        self._wire = wire.Connection(end, self._export, self._own, self._remote, plain.shallow)
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}  # id → number; the objects live as long as this table
        self._known: list[dict] = [{}, {}]
        self.printed = FirstLines()
        sys.modules["__main__"] = notebook = types.ModuleType("__main__")
        self.names: dict[str, Any] = notebook.__dict__
        one = shell.Shell(self.names, self._run_part)
        self.names.update(get_ipython=lambda: one, display=shell.display)
        self._cell, self._future, self._loop = "", 0, None

    def serve(self) -> None:
        """Until the judge hangs up."""
        with contextlib.redirect_stdout(self.printed), contextlib.redirect_stderr(self.printed):
            while True:
                try:
                    message = self._wire.receive()
                except wire.Closed:
                    return
                self._handle(message)

    def ask(self, number: int, method: str, args: tuple) -> Any:
        try:
            self._wire.send({"ask": number, "method": method, "args": list(args)})
        except plain.NotPlain as error:
            if method != "categorical":
                raise TypeError(f"called with {error}") from None
            return self.ask(number, method, tuple(map(plain.shown, args)))  # no distribution either, which the judge says
        while "do" in (message := self._wire.receive()):
            self._handle(message)
        if "answer" in message:
            return message["answer"]
        if "raise" in message:
            name, text = message["raise"]
            raise getattr(builtins, name)(text)
        raise Stopped

    def _handle(self, message: dict) -> None:
        try:
            action = getattr(self, "_do_" + message.pop("do"))
            reply = {"done": action(**message)}
        except Stopped:
            reply = {"stopped": True}
        except BaseException as error:
            reply = {"raised": _described(error)}
        try:
            self._wire.send(reply)
        except wire.Closed:
            raise
        except BaseException as error:  # nothing of it was sent
            self._wire.send({"raised": _described(error)})

    # -- what the judge asks for ---------------------------------------------------------------------------------------

    def _do_cell(self, name: str, source: str) -> None:
        self._cell = name
        self._run(source, f"{CELL}{name}>", self.names)

    def _do_defined(self, name: str) -> bool:
        return callable(self.names.get(name))

    def _do_call(self, function: Any, args: list) -> Any:
        target = self._target(function)
        answer = target(*args)
        return Instance(answer) if isinstance(target, type) else plain.plain(answer)

    def _do_get(self, of: Any, name: str) -> Any:
        value = plain.plain(getattr(of, name))
        return {"method": True} if callable(value) else {"value": value}

    def _do_method(self, of: Any, name: str, args: list) -> Any:
        return plain.plain(getattr(of, name)(*args))

    def _do_probe(self, name: str, args: list) -> Any:
        from . import probes  # which brings torch

        return getattr(probes, name)(*args)

    def _do_printed(self) -> str:
        return self.printed.take()

    def _do_steps(self, function: Any, prefixes: list, order: list, k: int, models: list, rows: Any, rng: int) -> dict:
        """One step behind each prefix of the order, with models and randomness that were lent. `odd`: the first result that is no list
        of whole numbers; what comes behind it is not run. rows: as `lent.known` reads them; a model is asked about what is not there."""
        step = self._target(function)
        asked = [lend(lent.Memo(model, known)) for model, known in zip(models, lent.known(prefixes, k, rows))]
        found: list[list[int]] = []
        numbers: list[float] = []
        start = 0
        for number in order:
            if start == len(numbers):
                numbers, start = rng.block().tolist(), 0
            result = step(prefixes[number], *asked, k, lend(lent.Row(numbers, start, rng.refuse, rng.exhausted)))
            start += lent.MOST_DRAWS
            try:
                found.append([int(operator.index(token)) for token in result])
            except TypeError:
                return {"found": found, "odd": [result]}
        return {"found": found, "odd": []}

    def _do_branches(self, function: Any, prefix: tuple, k: int, models: list, rows: Any, script: list, cells: list) -> list:
        """One step under a script, and those that an enumeration asks for next. rows: as `lent.known` reads them, of models that were
        not lent before; None where they are those of the branch before. `cells`: arguments of `lent.Cells`."""
        if rows is not None:
            self._known = lent.known([prefix], k, rows)
        found, scripts, step, cut = [], [script], self._target(function), lent.Cells(*cells)
        while scripts and len(found) < MOST_BRANCHES:
            asked = [lent.Memo(model, known) for model, known in zip(models, self._known)]
            chosen, result, refused = scripts.pop(), None, False
            rng = lent.Scripted(chosen, cut)
            try:
                result = step(prefix, *map(lend, asked), k, lend(rng))
            except lent.Refused:
                refused = True
            except Exception:
                if not found:
                    raise
                break  # the judge looks at the others first, and asks for this one then
            found.append([chosen, result, rng.log, [len(memo.called) for memo in asked], refused])
            if refused:
                break
            scripts += rng.behind() if len(found) == 1 else [later for later in rng.behind() if len(later) > len(chosen)]
        return found

    # -- objects -------------------------------------------------------------------------------------------------------

    def _target(self, function: Any) -> Any:
        return self.names[function] if type(function) is str else function

    def _export(self, value: Any) -> dict:
        if type(value) is Handle and value._number is not None:
            return {"own": value._number}
        if type(value) is Instance:
            value = value.value
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number not in self._objects:
            if len(self._objects) >= MOST_OBJECTS:
                raise plain.NotPlain(f"more than {MOST_OBJECTS} objects")
            self._objects[number] = value
        return {"ref": number}

    def _own(self, number: int) -> Any:
        return self._objects[number]

    def _remote(self, number: int) -> Handle:
        return Handle(lambda method: lambda *args: self.ask(number, method, args), number)

    # -- cells ---------------------------------------------------------------------------------------------------------

    def _run_part(self, source: str, local: dict[str, Any] | None = None) -> Any:
        """The code that a magic stands before."""
        return self._run(source, f"{CELL}{self._cell}, magic>", self.names if local is None else local)

    def _run(self, source: str, place: str, local: dict[str, Any]) -> Any:
        """Runs a cell as a notebook does: `await` may stand in it, and what it imports from the future stays. Returns the value of what
        is an expression."""
        linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self._future
        text = _as_python(source, flags)
        try:
            code = compile(text, place, "eval", flags, dont_inherit=True)
        except SyntaxError:
            code = compile(text, place, "exec", flags, dont_inherit=True)
        self._future |= code.co_flags & annotations.compiler_flag
        value = eval(code, self.names, local)
        if code.co_flags & inspect.CO_COROUTINE:
            self._loop = self._loop or asyncio.new_event_loop()
            value = self._loop.run_until_complete(value)
        return value


def _as_python(source: str, flags: int) -> str:
    """Python that parses is Python; of what does not, IPython makes calls of `get_ipython()`."""
    try:
        compile(source, "<cell>", "exec", flags, dont_inherit=True)
        return source
    except (SyntaxError, ValueError):
        from IPython.core.inputtransformer2 import TransformerManager

        return TransformerManager().transform_cell(source)


def _described(error: BaseException) -> dict:
    try:
        text = str(error)
    except BaseException:  # theirs, too
        text = ""
    found, stub = None, ""
    for number, (frame, line) in enumerate(traceback.walk_tb(error.__traceback__)):
        if number > ONLY_FRAMES:
            break
        if frame.f_code.co_filename.startswith(CELL):
            found, stub = (frame.f_code, line), frame.f_code.co_qualname.rpartition("<locals>.")[2]
    kind, shown = type(error).__name__, ""
    if isinstance(error, SyntaxError):
        found, shown = None, f"{kind} in line {error.lineno}: {(error.text or '').strip()[:120]}"
    if found is not None:
        code, line = found
        text_there = linecache.getline(code.co_filename, line).strip()[:120]
        shown = f"{kind} in {code.co_name}, line {line}" + (f": {text_there}" if text_there else "")
    bases = [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]
    return {"type": kind, "bases": bases, "text": text[:1000], "line": shown, "stub": stub if "NotImplementedError" in bases else ""}


def main(end: socket.socket) -> None:
    sys.setrecursionlimit(3000)
    Responder(end).serve()
