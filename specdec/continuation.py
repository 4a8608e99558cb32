"""The text of tokens that come one after another: what is printed piece by piece is the text as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"  # what bytes decode to that are no whole character, or not yet
CONTEXT = 16  # tokens before the new ones that are decoded with them


class Continuation:
    """The text that continues a prompt: decode(prompt) + all pieces = decode(prompt + all ids).

    No piece is decoded alone: SentencePiece's decoders drop the space before a first word, and the bytes of a character may be spread over
    several tokens. At most one character is held back, while its end may still come. If the prompt itself ends within a character,
    and the new tokens complete it, it belongs to the continuation.

    Args:
        decode: ids → text, as `Tokenizer.decode`: what comes later changes nothing that came before, but a broken last character.
        prompt: ids.
    """

    def __init__(self, decode: Callable[[list[int]], str], prompt: Sequence[int] = ()):
        self._decode = decode
        self._ids, self._text = list(prompt), ""  # the tokens that are decoded together, and their text
        recent = self._ids[-CONTEXT:]
        text = decode(recent) if recent else ""
        if _says_something(text):
            self._ids, self._text = recent, text
        elif self._ids:
            self._text = decode(self._ids)
        self._given = self._text  # of it, what is out

    def push(self, ids: Sequence[int]) -> str:
        """What the ids add to the text, less a last character that is not whole."""
        self._ids += ids
        self._text = self._decode(self._ids)
        whole, given = self._text.removesuffix(BROKEN), self._given
        if not self._text.startswith(given):  # the broken end of the prompt is whole now
            given = given.removesuffix(BROKEN)
        new = whole[len(given) :]
        self._given = self._text[: max(len(whole), len(given))]
        self._forget()
        return new

    def finish(self) -> str:
        """What was held back."""
        rest = self._text[len(self._given) :]
        self._given = self._text
        return rest

    def _forget(self) -> None:
        """Early tokens are decoded no more where the later ones say the same without them, so that a token costs the same at any length."""
        if len(self._ids) < 2 * CONTEXT or self._given != self._text:
            return
        recent = self._ids[-CONTEXT:]
        text = self._decode(recent)
        if _says_something(text) and self._text.endswith(text):
            self._ids, self._text, self._given = recent, text, text


def _says_something(text: str) -> bool:
    """Whether a token after this text is none that begins a text; and the text itself begins with a whole character."""
    return bool(text.strip()) and not text.startswith(BROKEN)
