"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Writes beside the file, then moves over it, so that whoever looks, or is killed, meets the old content or the new.

    Text is UTF-8; what UTF-8 cannot express, as bytes in a folder's name that are no text, is written as \\udcXX.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.partial")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
