"""What the commands have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console


@contextmanager
def clear_errors() -> Iterator[None]:
    """A wrong value is the user's to mend: one line that names it, exit status 2, no traceback."""
    try:
        yield
    except ValueError as error:
        Console(stderr=True, highlight=False).print(f"[bold red]error:[/] {error}")
        raise typer.Exit(2) from error
