"""Progress bars: on a terminal only, on standard error, gone when they are done. A notebook's page shows none."""

import sys

from rich.console import Console
from rich.progress import Progress


def progress() -> Progress:
    return Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
