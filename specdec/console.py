"""What the commands have in common."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

# In place of what a terminal's encoding lacks, one for one, so that tables stay in line. Anything else becomes a question mark.
NEAREST = dict(zip("×–—·…ταΣ✓✗“”‘’→₊", "x--|.taS+x\"\"''>+", strict=True))


def new_console(stderr: bool = False) -> Console:
    """A console that prints what it is given: paths, messages and names have brackets and colons, which are no markup and no emoji."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


@contextmanager
def clear_errors() -> Iterator[None]:
    """A wrong value, or a file that cannot be read or written, is the user's to mend: one line that names it, exit status 2, no
    traceback."""
    try:
        yield
    except BrokenPipeError:  # nobody reads on: click ends the program
        raise
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error), error)
    except ValueError as error:
        _end(str(error), error)


def _end(message: str, error: Exception) -> None:
    new_console(stderr=True).print(Text.assemble(("error:", "bold red"), " ", message), soft_wrap=True)
    raise typer.Exit(2) from error


def print_anything() -> None:
    """Standard output and error take every character, whatever the terminal's encoding: an ASCII one shows those that it lacks as the
    nearest that it has."""
    codecs.register_error("nearest", _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not in a notebook, whose streams take all
            stream.reconfigure(errors="nearest")


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(NEAREST.get(character, "?") for character in error.object[error.start : error.end]), error.end
