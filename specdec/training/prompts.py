"""The prompts of a harvest, and the target's text behind them, without its loops."""

from __future__ import annotations

import numpy as np
import torch

from specdec.decoding import Request, rounds
from specdec.distributions import Sampling
from specdec.drafters.base import Drafter
from specdec.models.tokenizer import Tokenizer
from specdec.models.transformer import Transformer
from specdec.training.config import KINDS, Harvest
from specdec.training.corpora import OPENINGS, WORDINGS, Corpus, digest, whole_sentences
from specdec.uniforms import Uniforms


@torch.inference_mode()
def continue_all(
    target: Transformer, prompts: list[list[int]], sampling: Sampling, new_tokens: int, seed: int, drafter: Drafter | None = None
) -> list[list[int]]:
    """The new ids of every prompt, up to a stop token or the budget. Row b draws from request b of the seed.

    `generate` gives rows of different prompts the same numbers at the same position. Each text has the right law all the same; but of
    a thousand texts that learned which token follows at position 200, all that were generated together would have seen the same luck.
    """
    requests = [
        Request.begin(target, list(prompt), new_tokens, drafter, sampling, Uniforms(seed, row))
        for row, prompt in enumerate(prompts)
    ]
    cache = target.new_cache(max(request.longest for request in requests) - 1, len(requests))
    for _ in rounds(target, cache, requests, sampling, frozenset(target.tokenizer.stop_tokens)):
        pass
    return [request.committed[len(prompt) :] for request, prompt in zip(requests, prompts, strict=True)]


def find_loop(tokens: list[int], longest: int = 64, window: int = 64, periods: int = 4) -> tuple[int, int] | None:
    """Where the text began to say the same over and over: (start, period), or None if its end is no loop.

    It is one if its last `window` tokens, and at least its last `periods` periods, repeat with a period of at most `longest` tokens;
    of several periods the shortest counts. From `start` on every token equals the one a period before it, or is of the first period.
    """
    for period in range(1, longest + 1):
        same = len(tokens)
        while same > period and tokens[same - 1] == tokens[same - 1 - period]:
            same -= 1
        if len(tokens) - (same - period) >= max(window, periods * period) and same < len(tokens):
            return same - period, period
    return None


def cut_loop(tokens: list[int], keep: int = 3) -> list[int]:
    """The text without the end of its loop: `keep` periods stay, since the target does go on so, and a draft should know it.

    Small models loop in greedy text; uncut, what is learned best would be to repeat.
    """
    loop = find_loop(tokens)
    return tokens if loop is None else tokens[: loop[0] + keep * loop[1]]


class Prompts:
    """Prompts of every kind for a target.

    Raises:
        ValueError: if messages are asked for and the tokenizer has no chat template, or a source has no passage.
    """

    def __init__(self, target: Transformer, config: Harvest):
        self.target, self.config, self.tokenizer = target, config, target.tokenizer
        self.corpora = {
            name: Corpus(name, config.split, n) for name, n in (("code", 2000), ("prose", 1000), ("shakespeare", 2000))
        }
        self.sources = {name: digest(name, config.split) for name in self.corpora}
        chats = config.chat or config.summary
        self.before_message = self.tokenizer.chat("⁂").partition("⁂")[0] if chats else ""

    def draw(self, random: np.random.Generator) -> list[list[int]]:
        """The prompts of a shard, in the order of `Harvest.kinds`."""
        kinds = [KINDS[kind] for kind in self.config.kinds()]
        messages = iter(self._messages(kinds.count("chat"), random))
        make = {
            "code": lambda: self._prefix("code", random),
            "chat": lambda: self._chat(next(messages)),
            "summary": lambda: self._chat(self._summary(random)),
            "shakespeare": lambda: self._prefix("shakespeare", random),
        }
        return [make[kind]() for kind in kinds]

    def _chat(self, message: str) -> list[int]:
        return self.tokenizer.encode(self.tokenizer.chat(message))

    def _prefix(self, source: str, random: np.random.Generator) -> list[int]:
        least, most = self.config.prefix
        return self.tokenizer.encode(self.corpora[source].passage(random))[: random.integers(least, most + 1)]

    def _summary(self, random: np.random.Generator) -> str:
        source = ("prose", "shakespeare")[random.integers(2)]
        least, most = self.config.passage
        ids = self.tokenizer.encode(self.corpora[source].passage(random))[: random.integers(least, most + 1)]
        return WORDINGS[random.integers(len(WORDINGS))].format(whole_sentences(self.tokenizer.decode(ids)))

    def _messages(self, n: int, random: np.random.Generator) -> list[str]:
        """What the target writes in the user's place. A quarter more than needed, so that those that came to an end can go first."""
        if not n:
            return []
        openings = [OPENINGS[i] for i in random.integers(len(OPENINGS), size=n + n // 4 + 1)]
        prompts = [self.tokenizer.encode(self.before_message + opening) for opening in openings]
        sampling = Sampling(1.0, top_p=self.config.message_top_p)
        found = continue_all(self.target, prompts, sampling, self.config.message_tokens, int(random.integers(2**63)))
        messages = [
            (opening + _message(self.tokenizer, ids), ids[-1] in self.tokenizer.stop_tokens)
            for opening, ids in zip(openings, found, strict=True)
        ]
        messages.sort(
            key=lambda message: not message[1] or len(message[0].split()) < 3
        )  # stable: the order of drawing otherwise
        return [message.strip() or "Hello" for message, _ in messages[:n]]


def _message(tokenizer: Tokenizer, ids: list[int]) -> str:
    text = tokenizer.decode(ids)
    return text if ids[-1] in tokenizer.stop_tokens else whole_sentences(text)
