"""What a check is: a function of the student's functions and a seed that returns a Result.

A check never trusts what it gets. It calls the student's code through `call`, which turns an exception into a short message
with the student's own line; it draws every random number itself; and it raises Wrong where it knows what went wrong.
"""

from __future__ import annotations

import contextlib
import importlib
import linecache
import math
import signal
import threading
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from autograder.inside import plain
from autograder.inside.plain import number
from autograder.inside.printed import FirstLines

HERE = Path(__file__).parent
OURS = (HERE, HERE.parent / "inside", HERE.parents[1] / "specdec")  # code that is never the student's
SECONDS = 20.0  # a check's time limit; an endless loop is then a message, not a hanging kernel
SIMPLE = 5.0  # for a check that calls a function a hundred times, with numbers


@dataclass(frozen=True)
class Result:
    """The outcome of one check, as plain data.

    message: on success what was shown, otherwise the named mistake.
    expected, got, hint: for a failure, one or a few lines each.
    picture: keyword arguments of `figures.draw`, or None.
    credit: the part of the points that a failure is worth, in [0, 1].
    printed: the first lines that the student's code printed meanwhile, warnings included.
    """

    passed: bool
    message: str
    expected: str = ""
    got: str = ""
    hint: str = ""
    picture: dict[str, Any] | None = None
    printed: str = ""
    credit: float = 0.0
    facts: dict[str, float] = field(default_factory=dict)


class Signal(Exception):
    """Passes through the student's code on its way to the check: `call` does not report it as the student's exception."""


class Wrong(Signal):
    """A check has seen what is wrong. `mistake` names it; the rest is as in Result.

    raised: what the student's code raised, if that is what is wrong. Not why an answer is no plain data, nor why there is none.
    """

    raised: BaseException | None = None

    def __init__(
        self, mistake: str, expected: str = "", got: str = "", hint: str = "", picture: dict | None = None, credit: float = 0.0
    ):
        super().__init__(mistake)
        self.result = Result(False, mistake, expected, got, hint, picture, credit=credit)


class OutOfTime(BaseException):
    """Raised inside the student's code when time is up. Not an Exception, so that `except Exception` does not swallow it."""

    def __init__(self, seconds: float):
        super().__init__(f"not finished after {seconds:.0f} s")


@dataclass(frozen=True)
class Mistake:
    """An entry of a catalogue: a wrong variant of a function, by which the same mistake is recognised in a student's."""

    name: str
    hint: str
    variant: Any


_registry: dict[str, tuple[Callable[..., Result], float]] = {}


def register(name: str, seconds: float = SECONDS) -> Callable:
    """Makes a function a check: `function(*student_functions, seed) -> Result`. Names are `NN.what`."""

    def add(function: Callable[..., Result]) -> Callable[..., Result]:
        _registry[name] = (function, seconds)
        return function

    return add


def load(chapter: str) -> None:
    """Imports the checks of a chapter, `NN_slug.py` beside this file. A name cannot start with a digit in an import statement."""
    for path in HERE.glob(f"{chapter}_*.py"):
        importlib.import_module(f"autograder.checks.{path.stem}")


def names(chapter: str | None = None) -> list[str]:
    """The names of all checks, or of one chapter's, in the order in which an exercise asks for them."""
    for path in sorted(HERE.glob(f"{chapter or '[0-9][0-9]'}_*.py")):
        load(path.stem[:2])
    return [name for name in _registry if chapter is None or name.startswith(f"{chapter}.")]


class Host(Protocol):
    """Where the student's functions run: here (`Here`), or in a process of their own (the judge's `Session`).

    faults: exceptions by which the host itself fails; no answer of a student's is to blame for them.
    """

    faults: tuple[type[Exception], ...]

    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        """Raises OutOfTime after so many seconds."""
        ...

    def printing(self) -> AbstractContextManager[Callable[[], str]]:
        """Catches what the student's code prints meanwhile; called, gives its first lines."""
        ...

    def answer(self, function: Callable, value: Any) -> Any:
        """What a function of the student's returned, by the rule of `inside.plain`."""
        ...



def run(name: str, *functions: Any, seed: int = 0, host: Host | None = None) -> Result:
    """Runs one check. Whatever the student's code does, the answer is a Result.

    Raises:
        KeyError: if there is no such check.
    """
    load(name.partition(".")[0])
    if name not in _registry:
        raise KeyError(f"no check is called {name!r}; there are {', '.join(names())}")
    function, seconds = _registry[name]
    before = _host.set(host or _HERE)
    try:
        with _host.get().printing() as printed:
            try:
                with time_limit(seconds):
                    result = function(*functions, seed=seed)
            except Wrong as wrong:
                result = wrong.result
            except OutOfTime as late:
                result = Result(False, str(late), hint=_ENDLESS)
            except (SystemExit, Exception) as error:
                if isinstance(error, _host.get().faults):
                    raise
                result = _unjudged(error)
        return bounded(replace(result, printed=printed()))
    finally:
        _host.reset(before)


def _unjudged(error: BaseException) -> Result:
    """The answer, or what the student's code did to the check, made the check itself raise: a failure like any other."""
    if isinstance(error, Elsewhere) or _students_frame(error) is not None:
        return _raised(error).result
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    raised = f"{type(error).__name__} in {frame.f_code.co_name}: {_shortened(_text(error), 120) or 'no message'}"
    return Result(False, f"this check cannot judge what your code returned ({raised})", hint="Are all results what the task asks for?")


MOST_TEXT, MOST_DRAWN = 2000, 20_000  # characters of a result's text; numbers and words of its picture


def bounded(result: Result) -> Result:
    """No longer than somebody reads, without addresses, which differ from run to run; and a picture of plain, finite parts."""
    texts = {name: getattr(result, name) for name in ("message", "expected", "got", "hint", "printed")}
    cut = {name: plain.without_addresses(_shortened(text, MOST_TEXT)) for name, text in texts.items()}
    try:
        picture = None if result.picture is None else _drawable(result.picture, [MOST_DRAWN])
    except ValueError:
        picture = None
    return replace(result, picture=picture, **cut)


def _drawable(value: Any, left: list[int]) -> Any:
    """Raises ValueError where a picture has too many parts, or one that is no number, text, list or dictionary."""
    left[0] -= 1
    if left[0] < 0:
        raise ValueError("too large to be drawn")
    if value is None or isinstance(value, (bool, str)):
        return value[:MOST_TEXT] if isinstance(value, str) else value
    if isinstance(value, (list, tuple)):
        return type(value)(_drawable(item, left) for item in value)
    if isinstance(value, dict):
        return {_drawable(key, left): _drawable(item, left) for key, item in value.items()}
    found = number(value)
    return value if isinstance(value, int) and abs(found) < 2**53 else found if math.isfinite(found) else math.nan


_ENDLESS = "Look for a loop that never ends: a `while` whose condition does not change, or a step that emits no token."


def call(function: Callable, *args: Any, what: str = "") -> Any:
    """The student's function on these arguments: its answer as `inside.plain` has it.

    Raises:
        Wrong: if the function is still a stub, raises, or returns what is no plain data; `what` says which call it was.
    """
    try:
        return _host.get().answer(function, function(*args))
    except (Signal, *_host.get().faults):
        raise
    except NotImplementedError as error:
        raise Wrong(
            f"{_stub(error)} is not written yet",
            hint="Replace the line `raise NotImplementedError(...)` with your code, run that cell, then this one.",
        ) from error
    except (Exception, SystemExit) as error:
        raise _raised(error, f"a result from {what}" if what else "") from error


def _raised(error: BaseException, expected: str = "") -> Wrong:
    if _kind(error) in ("NotPlain", "Malformed"):
        return Wrong(f"your code returned {_text(error)}", expected)
    wrong = Wrong(f"your code raised {_kind(error)}: {_shortened(_text(error) or 'no message')}", expected, _students_line(error))
    wrong.raised = error
    return wrong


class Elsewhere(Exception):
    """An exception of the student's code in another process. kind: its type's name; line: where; stub: what is not written yet."""

    kind, line, stub = "", "", ""


class Stays(ABC):
    """An object of the student's in another process. `probe(name, *args)` runs a function of `inside.probes` beside it."""

    @abstractmethod
    def probe(self, name: str, *args: Any) -> Any: ...


def probe(name: str, of: Any, *args: Any) -> Any:
    """`inside.probes.name(of, *args)`, wherever the object is."""
    if isinstance(of, Stays):
        return call(of.probe, name, *args)
    from autograder.inside import probes  # imports torch

    return call(getattr(probes, name), of, *args)


def _kind(error: BaseException) -> str:
    return error.kind if isinstance(error, Elsewhere) else type(error).__name__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # theirs, too
        return ""


def _shortened(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[:limit] + " …"


def _stub(error: BaseException) -> str:
    """The function that is not written yet; it may be one that the called one calls."""
    if isinstance(error, Elsewhere):
        return error.stub
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return frame.f_code.co_qualname.rpartition("<locals>.")[2]


def _students_frame(error: BaseException) -> TracebackType | None:
    frame, found = error.__traceback__, None
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if "site-packages" not in name and not any(folder in Path(name).parents for folder in OURS):
            found = frame
        frame = frame.tb_next
    return found


def _students_line(error: BaseException) -> str:
    """The innermost line of the traceback that is the student's own: not a library's, not the check's."""
    if isinstance(error, Elsewhere):
        return error.line
    found = _students_frame(error)
    if found is None:
        return f"{type(error).__name__} before your code ran: do the arguments fit the task's description?"
    code = found.tb_frame.f_code
    line = linecache.getline(code.co_filename, found.tb_lineno).strip()
    return f"{type(error).__name__} in {code.co_name}, line {found.tb_lineno}" + (f": {_shortened(line, 120)}" if line else "")


def time_limit(seconds: float) -> AbstractContextManager[None]:
    """Raises OutOfTime after `seconds`, wherever the student's code runs."""
    return _host.get().time_limit(seconds)


class Here:
    """The process of the check: a notebook's kernel, or a test."""

    faults: tuple[type[Exception], ...] = ()

    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        return _alarm(seconds)

    def answer(self, function: Callable, value: Any) -> Any:
        return value if isinstance(function, type) else plain.plain(value)  # what a class was called for is an object

    @contextlib.contextmanager
    def printing(self) -> Iterator[Callable[[], str]]:
        prints, remarks = FirstLines(), FirstLines(3)
        with _quiet(prints, remarks):
            yield lambda: "\n".join(filter(None, [remarks.take(), prints.take()]))


_HERE = Here()
_host: ContextVar[Host] = ContextVar("host", default=_HERE)


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """In the main thread. Elsewhere, and where there is no SIGALRM, nothing is limited."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        raise OutOfTime(seconds)

    before = signal.signal(signal.SIGALRM, stop)
    start, (left, every) = time.monotonic(), signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again each second
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # somebody else's timer was running
            signal.setitimer(signal.ITIMER_REAL, max(0.01, left - (time.monotonic() - start)), every)


@contextlib.contextmanager
def _quiet(prints: FirstLines, remarks: FirstLines) -> Iterator[None]:
    """Catches prints, and warnings apart from them: to nbgrader anything on stderr would make a right answer wrong."""
    with contextlib.redirect_stdout(prints), contextlib.redirect_stderr(prints), warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, category, *_args, **_kwargs: remarks.write(f"{category.__name__}: {message}\n")
        yield
