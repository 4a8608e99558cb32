"""Students' names as folders and as ids in a gradebook. A name may be anything that a folder can be called."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

CHARACTERS, BYTES = 100, 200  # nbgrader's column takes 128 characters, a file system 255 bytes; a digest and an ending follow


def folders(students: Iterable[str]) -> dict[str, str]:
    """{student: folder}. Most keep their name. One that is too long, has characters that a path, a CSV file or a database takes
    badly, or differs from another only in upper and lower case, gets a digest behind it, by which it is told apart everywhere."""
    names = {student: safe(student) for student in students}
    alike = Counter(_alike(name) for name in names.values())
    return {student: name if alike[_alike(name)] == 1 else _with_digest(name, student) for student, name in names.items()}


def safe(name: str) -> str:
    """One name alone, without a look at the others."""
    plain = re.sub(r"[^\w.@+ -]", "-", name).strip(" .")
    while len(plain) > CHARACTERS or len(plain.encode()) > BYTES:
        plain = plain[:-1]
    return plain if plain == name else _with_digest(plain, name)


def _with_digest(plain: str, name: str) -> str:
    return f"{plain.strip(' .')}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _alike(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
