"""What IPython adds to Python, as far as grading has it: one rule for the sandbox, for the notebook's checks and for a mark's notes.

The code beside or under a magic that measures is run, files are written, what is only shown is left out. Commands of the system and
other languages are not run, which `not_run` says in a sentence.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNS = ("time", "timeit", "prun", "capture")
WRITES = ("writefile", "file")
SHOWS = ("html", "HTML", "svg", "SVG", "latex", "markdown", "javascript", "js")
COURSE = ("autograder", "specdec")
# What grading imports from where Python has it, whatever files a notebook has beside it.
RESERVED = frozenset({*sys.stdlib_module_names, *COURSE, "numpy", "torch", "scipy", "matplotlib", "IPython"})
# Of %timeit and %prun; what follows is the statement.
OPTIONS = re.compile(r"(?:-[A-Za-z](?:\s*\d+)?(?:\s+|$)|--\S+(?:\s+|$))*")
# Of a line without its indentation. No part can give way to its neighbour: a line may be two million characters long.
MAGIC = re.compile(r"(?P<names>[\w,. \[\]]+=\s*)?(?:%time\s+(?P<timed>.*)|[%!?])|[\w.]+\?")
COMMAND = re.compile(r"(?:[\w,. \[\]]+=\s*)?(?:!|%(?:pip|conda|mamba|uv|sx|system)\b)")


class Shell:
    """What a magic in a cell finds in place of IPython. run: executes source with these local names, or the notebook's."""

    def __init__(self, names: dict[str, Any], run: Callable[..., Any]):
        self.user_ns, self._run = names, run

    def run_line_magic(self, name: str, line: str, *_: Any, **__: Any) -> Any:
        if name in ("time", "timeit", "prun"):
            there = sys._getframe(1)
            value = self._run(_statement(name, line), there.f_locals if there.f_globals is self.user_ns else None)
            return value if name == "time" else None
        if name == "run":
            path = next(word for word in line.split() if not word.startswith("-"))
            return self._run(Path(path).read_text(encoding="utf-8"))
        return None

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        if name == "capture":
            from IPython.utils.capture import CapturedIO

            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
                self._run("\n" + cell)  # the lines keep their numbers
            self.user_ns.update({word: CapturedIO(out, err, []) for word in line.split() if word.isidentifier()})
        elif name in RUNS:
            self._run(_statement(name, line) if name == "timeit" else "")
            self._run("\n" + cell)
        elif name in WRITES:
            *options, path = line.split()
            with open(path, "a" if "-a" in options else "w", encoding="utf-8") as file:
                file.write(cell)
            importlib.invalidate_caches()

    def getoutput(self, *_: Any, **__: Any) -> list[str]:
        return []

    def __getattr__(self, name: str) -> Callable:
        return lambda *_args, **_kwargs: None


def display(*objects: Any, **_: Any) -> None:
    """What the notebook has as `display`."""
    print(*objects)


def _statement(name: str, line: str) -> str:
    return line[OPTIONS.match(line).end() :] if name != "time" else line.removeprefix("--no-raise-error")


def parses(source: str) -> bool:
    """Whether the cell is Python as it stands."""
    try:
        ast.parse(source)
        return True
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last is the parser's word for too many brackets
        return False


def without_magics(source: str) -> str:
    """The cell's Python alone, to look for names in: nothing of it is for running."""
    lines = source.strip().splitlines()
    if parses(source) or not lines:
        return source
    if lines[0].startswith("%%"):
        return without_magics("\n".join(lines[1:])) if _magic(lines[0]) in RUNS else ""
    return "\n".join(map(_without_magic, lines))


def _without_magic(line: str) -> str:
    text = line.lstrip()
    match = MAGIC.match(text)
    if match is None:
        return line
    return line[: len(line) - len(text)] + (f"{match['names'] or ''}{match['timed']}" if match["timed"] else "pass")


def not_run(source: str) -> list[str]:
    """A sentence for each thing in a cell that grading leaves out and that may be missed."""
    lines = source.strip().splitlines()
    if parses(source) or not lines:
        return []
    if lines[0].startswith("%%"):
        name = _magic(lines[0])
        if name not in (*RUNS, *WRITES, *SHOWS):
            return [f"grading does not run a cell of %%{name}"]
        module = written(source)
        if module in RESERVED:
            return [f"in grading `import {module}` is Python's or the course's own, not your {module}.py: give the file another name"]
        lines = lines[1:] if name in RUNS else []
    if any(COMMAND.match(line.lstrip()) for line in lines):
        return ["grading runs no command of the system, such as !pip install: what the course needs is there, and nothing else"]
    return []


def written(source: str) -> str:
    """The name of the module beside the notebook that a cell writes with %%writefile; "" if it writes none."""
    first = source.strip().partition("\n")[0]
    path = first.split()[-1:] if first.startswith("%%") and _magic(first) in WRITES else []
    return next((match[1] for match in map(re.compile(r"(?:\./)?(\w+)\.py").fullmatch, path) if match), "")


def not_there(module: str) -> str:
    """The sentence about a file beside the notebook."""
    return f"of your files grading has the notebook alone: {module}.py is there if a cell writes it, under %%writefile {module}.py"


def _magic(line: str) -> str:
    return re.match(r"%%([\w!]*)", line)[1]
