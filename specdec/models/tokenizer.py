"""The tokenizer of a checkpoint, built with `tokenizers`, plus the chat template that the checkpoint carries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from specdec.continuation import BROKEN
from specdec.models.errors import CheckpointError

CONTROL = 3  # GGUF's token type for special tokens such as <|im_end|>


@dataclass(frozen=True)
class Tokenizer:
    """encode(text) → ids, decode(ids) → text, and the ids that end a text.

    fast: the `tokenizers` object underneath.
    stop_tokens: ids that end a generation.
    chat_template: Jinja2 source, or None.
    special_tokens: by their role, such as {"bos_token": "<s>"}; a chat template may name them.
    """

    fast: FastTokenizer
    stop_tokens: tuple[int, ...] = ()
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        """Ids of the text; special tokens written out in it, such as <|im_start|>, become their own id.

        Nothing is added, not even the token that begins a text: a chat template writes it out, and plain text may.

        Raises:
            ValueError: if the text holds what no UTF-8 can: bytes of another encoding, as Python keeps them, or half a character.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the text is no valid UTF-8: its character {error.start} is {text[error.start]!r}") from error
        return self.fast.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out. Bytes that are not yet a whole character decode to U+FFFD.

        What more ids add changes nothing before them but such a broken character at the end (`specdec.continuation`).
        """
        text = self.fast.decode(list(ids), skip_special_tokens=True)
        if BROKEN not in text or "ByteFallback" not in repr(self.fast.decoder):
            return text
        special = {id for id, token in self.fast.get_added_tokens_decoder().items() if token.special}
        tokens = [self.fast.id_to_token(id) for id in ids if id not in special]
        return self.fast.decoder.decode(_apart([token for token in tokens if token is not None]))

    def chat(self, message: str, system: str | None = None) -> str:
        """The message as the model was trained to see it: its chat template, up to where the answer begins.

        Raises:
            ValueError: if the checkpoint has no chat template, or the template refuses the messages (some take no system message).
        """
        if self.chat_template is None:
            raise ValueError("this model has no chat template; give it plain text")
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": message})
        try:
            template = _environment().from_string(self.chat_template)
            others = {"tools": None, "documents": None} | self.special_tokens
            return template.render(messages=messages, add_generation_prompt=True, **others)
        except (TemplateError, TypeError) as error:  # TypeError: a template is a program, and adds what cannot be added
            raise ValueError(f"the chat template cannot take these messages: {error}") from error

    def to_json(self) -> str:
        return json.dumps([self.fast.to_str(), self.stop_tokens, self.chat_template, dict(self.special_tokens)])

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        fast, stop_tokens, chat_template, special_tokens = json.loads(text)
        return cls(FastTokenizer.from_str(fast), tuple(stop_tokens), chat_template, special_tokens)

    def same_vocabulary(self, other: Tokenizer) -> bool:
        """Whether every id means the same text in both."""
        return self.fast is other.fast or self.fast.get_vocab() == other.fast.get_vocab()


def _apart(tokens: list[str]) -> list[str]:
    """Byte tokens <0xC3> so that a character that is broken breaks no other: `ByteFallback` gives up a whole run of bytes for it.

    What is no character becomes U+FFFD, one for each part that might have begun one, as in byte-level decoders."""
    apart: list[str] = []
    for is_byte, run in groupby(tokens, lambda token: re.fullmatch("<0x[0-9A-F]{2}>", token) is not None):
        if not is_byte:
            apart += run
            continue
        for character in bytes(int(token[3:5], 16) for token in run).decode(errors="replace"):
            whole = [f"<0x{byte:02X}>" for byte in character.encode()]
            apart += [BROKEN] if character == BROKEN else [*whole, ""]  # the empty token ends a run
    return apart


class _Generation(Extension):
    """{% generation %} … {% endgeneration %} marks for training what the assistant says; what is said does not change."""

    tags = frozenset({"generation"})

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    """What chat templates are written for: the settings and functions that `transformers` renders them with."""

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    extensions = ["jinja2.ext.loopcontrols", _Generation]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)  # Jinja's own escapes for HTML
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def from_tokenizer_json(
    path: Path, stop_tokens: Sequence[int], chat_template: str | None, special_tokens: Mapping[str, str]
) -> Tokenizer:
    """The tokenizer of a Hugging Face directory.

    Raises:
        CheckpointError: if `tokenizers` cannot read the file.
    """
    try:
        fast = FastTokenizer.from_file(str(path))
    except Exception as error:  # `tokenizers` raises no narrower one
        raise CheckpointError(f"{path} is no tokenizer that can be read: {error}") from error
    # Settings of a training run that the file may carry; here a text is neither cut nor filled up.
    fast.no_truncation()
    fast.no_padding()
    return Tokenizer(fast, tuple(stop_tokens), chat_template, special_tokens)


def from_gguf_fields(
    tokens: list[str], types: list[int], merges: list[str], template: str | None, special: Mapping[str, int],
    stop_tokens: Sequence[int] | None = None,
) -> Tokenizer:  # fmt: skip
    """SmolLM's byte-level BPE: digits are split one by one before the byte-level step; no space is put in front.

    special: ids by their role, "bos_token" and "eos_token". stop_tokens: the ids that end a text; None: the eos_token, if there is one.
    """
    pairs = [tuple(merge.split(" ")) for merge in merges]
    fast = FastTokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    fast.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types) if kind == CONTROL]
    fast.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    if stop_tokens is None:
        stop_tokens = [id for role, id in special.items() if role == "eos_token"]
    return Tokenizer(fast, tuple(stop_tokens), template, {role: tokens[id] for role, id in special.items()})
