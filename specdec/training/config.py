"""TrainConfig and Harvest: everything that a training run and a harvest are functions of."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from specdec.config import check_size
from specdec.distributions import Sampling
from specdec.models import SMOLLM2, Transformer

COPIES = ("first", "last", "spread")  # of the target's layers
GPT_HEAD_DIM = 32
# What each method can be told beside what all can: the default, and what else there is to choose from.
OPTIONS: dict[str, dict[str, object]] = {
    "gpt": {"layers": 4, "hidden_size": 128},
    "distill": {"init": "last", "loss": "kl", "draft_vocab": 8192, "layers": 2, "model": SMOLLM2, "features": True},
    "medusa": {"init": "target", "loss": "kl", "draft_vocab": 8192, "heads": 3, "model": SMOLLM2, "features": True},
    "eagle-1": {"init": "target", "draft_vocab": 8192, "model": SMOLLM2, "features": True},
    "eagle-3": {"init": "target", "loss": "kl", "draft_vocab": 8192, "ttt_steps": 3, "own_head": False, "model": SMOLLM2, "features": True},
}
ALIASES = {"eagle": "eagle-3", "distilled": "distill"}  # what a method is called, too
HEADS = tuple(method for method in OPTIONS if method != "gpt")  # methods that train something for a target
INITS = dict.fromkeys(HEADS, ("target", "random")) | {"distill": (*COPIES, "random")}
LOSSES = {"distill": ("kl", "overlap"), "medusa": ("kl", "overlap", "tokens"), "eagle-3": ("kl", "overlap")}
KINDS = ("code", "chat", "summary", "shakespeare")  # of the prompts of a harvest


@dataclass(frozen=True)
class TrainConfig:
    """One training run. Two runs of one configuration on one machine, with as many threads, end at the same weights.

    What a method has no use for must stay None; what it needs and is None gets the method's usual value (`OPTIONS`).

    Args:
        method: "distill", "medusa", "eagle-1" (EAGLE-2 drafts with the same head) or "eagle-3" ("eagle" is that, too); "gpt" for a small
            model of characters, a target of its own.
        data: the directory that `specdec harvest` wrote, or "shakespeare", "code" or "prose": the corpus itself, as a target's tokenizer
            (gpt: characters) reads it. Another part of it is held out.
        model: the target, as `load_model` takes it; not for gpt.
        batch, length: texts of a step, and the most tokens of each. gpt: the length is the longest context, too.
        steps: of the whole run; the learning rate's schedule is over these. To stop earlier, see `train`.
        learning_rate: the highest; it rises linearly for `warmup` steps, and falls along a cosine to `final_rate` times itself.
        weight_decay: of matrices alone (AdamW, Loshchilov and Hutter 1711.05101).
        clip: the longest gradient.
        seed: of initialisation and order of the texts.
        checkpoint_every, validate_every: steps.
        validation_texts: how many held-out texts are looked at.
        draft_vocab: how many of the data's most frequent tokens are scored. distill, eagle-3: when drafting, too. medusa, eagle-1:
            in the loss alone, which a part of the LM head makes several times cheaper. 0: the whole vocabulary.
        init: distill: which layers of the target the draft's own are copies of: "first", "last", "spread" (evenly, the first and
            the last among them); the others: "target" for what the target's layers have of the same shape (medusa: heads that say
            what the target says). "random" for none.
        loss: "kl" against the target's distribution (logged is the cross-entropy: the KL and p's own entropy), "overlap" for
            1 - Σ min(p, q), or, medusa, "tokens" of the text itself.
        layers: distill: of the draft; gpt: of the model.
        hidden_size: gpt; a multiple of 32, the size of an attention head.
        heads: medusa.
        ttt_steps: eagle-3: of the training-time test.
        own_head: eagle-3: whether the LM head is trained and stored, or is the target's.
        features: whether a step learns from what the target computed when it wrote the texts, where the harvest kept it, in place of a
            forward. That is bfloat16; it has seen each text from its beginning, although `length` cuts it in pieces; and a text's last
            token has none and is not learned from. Batches that lack something (a text without features, a layer that the method
            reads) get a forward. Validation always runs the target.

    Raises:
        ValueError: naming a value and what was expected.
    """

    method: str
    data: str
    model: str | None = None
    batch: int = 8
    length: int = 256
    steps: int = 2000
    learning_rate: float = 1e-3
    warmup: int = 50
    final_rate: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    checkpoint_every: int = 100
    validate_every: int = 250
    validation_texts: int = 16
    draft_vocab: int | None = None
    init: str | None = None
    loss: str | None = None
    layers: int | None = None
    heads: int | None = None
    ttt_steps: int | None = None
    own_head: bool | None = None
    hidden_size: int | None = None
    features: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", ALIASES.get(self.method, self.method))
        if self.method not in OPTIONS:
            raise ValueError(f"method must be one of {', '.join(OPTIONS)}, got {self.method!r}")
        self._fill()
        for name in ("batch", "steps", "checkpoint_every", "validate_every", "validation_texts"):
            check_size(name, getattr(self, name))
        for name in ("layers", "heads", "ttt_steps", "hidden_size"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        if self.hidden_size is not None and self.hidden_size % GPT_HEAD_DIM:
            raise ValueError(f"hidden_size must be a multiple of {GPT_HEAD_DIM}, got {self.hidden_size}")
        if not isinstance(self.length, int) or self.length < 16:
            raise ValueError(f"length must be a whole number >= 16, got {self.length!r}")
        for name in ("warmup", "seed", "draft_vocab"):
            value = getattr(self, name)
            if not _is(value, int, 0, math.inf) and (name, value) != ("draft_vocab", None):
                raise ValueError(f"{name} must be a whole number >= 0, got {value!r}")
        for name, most in (("learning_rate", math.inf), ("clip", math.inf), ("final_rate", 1), ("weight_decay", math.inf)):
            value = getattr(self, name)
            if not _is(value, int | float, 0, most) or (value == 0 and name in ("learning_rate", "clip")):
                bounds = "in [0, 1]" if most == 1 else ">= 0" if name == "weight_decay" else "> 0"
                raise ValueError(f"{name} must be a number {bounds}, got {value!r}")
        for name, choices in (("init", INITS), ("loss", LOSSES)):
            if self.method in choices and getattr(self, name) not in choices[self.method]:
                raise ValueError(f"{name} of {self.method} must be one of {choices[self.method]}, got {getattr(self, name)!r}")

    def _fill(self) -> None:
        mine = OPTIONS[self.method]
        for name in {name for options in OPTIONS.values() for name in options}:
            value = getattr(self, name)
            if value is not None and name not in mine:
                raise ValueError(f"{self.method} has no {name}, got {value!r}; it has {', '.join(mine)}")
            if value is None and name in mine:
                object.__setattr__(self, name, mine[name])

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.learning_rate * (self.final_rate + (1 - self.final_rate) * (1 + math.cos(math.pi * done)) / 2)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> TrainConfig:
        """Raises ValueError if the text is not what `to_json` writes."""
        try:
            found = json.loads(text)
            return cls(**found)
        except (json.JSONDecodeError, TypeError) as error:
            raise ValueError(f"not the configuration of a training run: {error}") from error

    def command(self, to: str) -> str:
        """The command that runs this configuration; only what differs from the usual values is named."""
        usual = TrainConfig(self.method, self.data)
        words = ["specdec", "train", self.method, "--data", self.data, "--to", to]
        for field in fields(self):
            value, option = getattr(self, field.name), field.name.replace("_", "-")
            if value == getattr(usual, field.name):
                continue
            words += [f"--{option}" if value else f"--no-{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
        return " ".join(words)


def _is(value: object, kind, least: float, most: float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and least <= value <= most and value != math.inf


@dataclass(frozen=True)
class Harvest:
    """What a harvest is made of. Another one makes other shards.

    Each range is of tokens, both ends included, all lengths equally likely.

    Args:
        code, chat, summary, shakespeare: the shares of the kinds of prompts in every shard; they add up to 1.
        batch: texts of a shard; they are generated side by side.
        new_tokens: the most tokens of a continuation or an answer.
        temperatures: of the text; shard i has number i modulo their count.
        prefix: how much code or Shakespeare is given.
        passage: how much text is given to be summarised.
        message_tokens: the most tokens of a user's message.
        message_top_p: at which messages are drawn, at temperature 1. A small model's full distribution writes nonsense every other
            time; the messages are prompts, and nothing demands the target's exact law of them.
        split: the part of the sources that prompts are taken from.

    Raises:
        ValueError: naming what is wrong.
    """

    code: float = 0.35
    chat: float = 0.35
    summary: float = 0.15
    shakespeare: float = 0.15
    batch: int = 64
    new_tokens: int = 256
    temperatures: tuple[float, ...] = (0.0, 1.0)
    prefix: tuple[int, int] = (48, 192)
    passage: tuple[int, int] = (80, 220)
    message_tokens: int = 96
    message_top_p: float = 0.9
    split: str = "train"

    def __post_init__(self) -> None:
        for name in ("batch", "new_tokens", "message_tokens"):
            check_size(name, getattr(self, name))
        shares = [getattr(self, kind) for kind in KINDS]
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise ValueError(f"the shares of {', '.join(KINDS)} must be >= 0 and add up to 1, got {shares}")
        for name in ("prefix", "passage"):
            least, most = getattr(self, name)
            if not 1 <= least <= most:
                raise ValueError(f"{name} must be a range of lengths 1 <= least <= most, got {least} and {most}")
        if not self.temperatures:
            raise ValueError("a harvest needs at least one temperature, got none")
        for temperature in self.temperatures:
            Sampling(temperature)

    @classmethod
    def suited_to(cls, target: Transformer) -> Harvest:
        """The usual one; code and Shakespeare alone for a target without a chat template, and shorter texts for a short context."""
        usual, config = cls(), target.config
        if target.tokenizer is not None and target.tokenizer.chat_template is None:
            given = usual.code + usual.shakespeare
            usual = replace(usual, code=usual.code / given, chat=0.0, summary=0.0, shakespeare=usual.shakespeare / given)
        if usual.prefix[1] + usual.new_tokens > config.max_length:
            most = max(config.max_length // 2, 1)
            usual = replace(usual, prefix=(min(usual.prefix[0], most), min(usual.prefix[1], most)), new_tokens=most)
        return usual

    def kinds(self) -> list[int]:
        """The kind of each text of a shard, as an index into KINDS: every share to within one text."""
        ends = np.cumsum([getattr(self, kind) for kind in KINDS])
        return np.searchsorted(ends[:-1], (np.arange(self.batch) + 0.5) / self.batch, side="right").tolist()
