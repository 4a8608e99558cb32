"""What is said on standard error: progress bars, and a word about what goes on in another way than usual."""

import sys
from functools import cache

from rich.console import Console
from rich.progress import Progress
from rich.text import Text


def progress() -> Progress:
    """On a terminal only, and gone when it is done. A notebook's page shows none."""
    return Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def say(message: str) -> None:
    """One sentence, as it stands: a message may hold a path, and a path brackets."""
    Console(stderr=True).print(Text(message, style="yellow"), soft_wrap=True)


say_once = cache(say)  # a message for each process
