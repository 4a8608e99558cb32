"""What a long benchmark has finished, in files of JSON: each counts only under the conditions that it was measured under."""

from __future__ import annotations

import json
from pathlib import Path

from autograder import files


def load(path: Path, known: dict) -> dict | None:
    """The part that `store` kept there, if its conditions were these."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return stored["part"] if stored.get("known") == known else None


def store(path: Path, known: dict, part: dict) -> None:
    files.write(path, json.dumps({"known": known, "part": part}, indent=1))
