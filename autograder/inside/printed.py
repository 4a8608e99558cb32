"""What is printed, as much of it as anybody wants to read."""

from __future__ import annotations

import io


class FirstLines(io.TextIOBase):
    """Keeps the beginning of what is written to it: a print in a function that is called 50,000 times must not fill memory."""

    def __init__(self, lines: int = 8, characters: int = 800):
        super().__init__()
        self._lines, self._limit, self._kept, self._size = lines, characters, io.StringIO(), 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._kept.write(text[: max(0, self._limit - self._size)])
        self._size += len(text)
        return len(text)

    def take(self) -> str:
        """What was kept; from here on it begins anew."""
        lines, cut = self._kept.getvalue().splitlines(), self._size > self._limit
        self._kept, self._size = io.StringIO(), 0
        return "\n".join(lines[: self._lines]) + ("\n…" if cut or len(lines) > self._lines else "")
