"""The tokenizer of a checkpoint, built with `tokenizers`, plus the chat template that the checkpoint carries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

CONTROL = 3  # GGUF's token type for special tokens such as <|im_end|>


@dataclass(frozen=True)
class Tokenizer:
    """encode(text) → ids, decode(ids) → text, and the ids that end a text.

    fast: the `tokenizers` object underneath.
    stop_tokens: ids that end a generation.
    chat_template: Jinja2 source, or None.
    """

    fast: FastTokenizer
    stop_tokens: tuple[int, ...] = ()
    chat_template: str | None = None

    def encode(self, text: str) -> list[int]:
        """Ids of the text; special tokens written out in it, such as <|im_start|>, become their own id. Nothing is added."""
        return self.fast.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out. Bytes that are not yet a whole character decode to U+FFFD."""
        return self.fast.decode(list(ids), skip_special_tokens=True)

    def chat(self, message: str, system: str | None = None) -> str:
        """The message as the model was trained to see it: its chat template, up to where the answer begins.

        Raises:
            ValueError: if the checkpoint has no chat template.
        """
        if self.chat_template is None:
            raise ValueError("this model has no chat template; give it plain text")
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": message})
        template = ImmutableSandboxedEnvironment().from_string(self.chat_template)
        return template.render(messages=messages, add_generation_prompt=True)

    def to_json(self) -> str:
        return json.dumps([self.fast.to_str(), self.stop_tokens, self.chat_template])

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        fast, stop_tokens, chat_template = json.loads(text)
        return cls(FastTokenizer.from_str(fast), tuple(stop_tokens), chat_template)

    def same_vocabulary(self, other: Tokenizer) -> bool:
        """Whether every id means the same text in both."""
        return self.fast is other.fast or self.fast.get_vocab() == other.fast.get_vocab()


def from_gguf_fields(tokens: list[str], types: list[int], merges: list[str], stop: int, template: str | None) -> Tokenizer:
    """SmolLM's byte-level BPE: digits are split one by one before the byte-level step; no space is put in front."""
    pairs = [tuple(merge.split(" ")) for merge in merges]
    fast = FastTokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    fast.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types) if kind == CONTROL]
    fast.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return Tokenizer(fast, (stop,), template)
