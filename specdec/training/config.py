"""TrainConfig: everything that a training run is a function of."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields

from specdec.config import check_size

COPIES = ("first", "last", "spread")  # of the target's layers
# What each method can be told beside what all can: the default, and what else there is to choose from.
OPTIONS: dict[str, dict[str, object]] = {
    "distill": {"init": "last", "loss": "kl", "draft_vocab": 8192, "layers": 2},
    "medusa": {"init": "target", "loss": "kl", "draft_vocab": 8192, "heads": 3},
    "eagle-1": {"init": "target", "draft_vocab": 8192},
    "eagle-3": {"init": "target", "loss": "kl", "draft_vocab": 8192, "ttt_steps": 3, "own_head": False},
}
INITS = dict.fromkeys(OPTIONS, ("target", "random")) | {"distill": (*COPIES, "random")}
LOSSES = {"distill": ("kl", "overlap"), "medusa": ("kl", "overlap", "tokens"), "eagle-3": ("kl", "overlap")}


@dataclass(frozen=True)
class TrainConfig:
    """One training run. Two runs of one configuration on one machine, with as many threads, end at the same weights.

    What a method has no use for must stay None; what it needs and is None gets the method's usual value (`OPTIONS`).

    Args:
        method: "distill", "medusa", "eagle-1" (EAGLE-2 drafts with the same head) or "eagle-3".
        data: the directory that `specdec harvest` wrote.
        model: the target, as `load_model` takes it.
        batch, length: texts of a step, and the most tokens of each.
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
        layers: distill: of the draft.
        heads: medusa.
        ttt_steps: eagle-3: of the training-time test.
        own_head: eagle-3: whether the LM head is trained and stored, or is the target's.

    Raises:
        ValueError: naming a value and what was expected.
    """

    method: str
    data: str
    model: str = "smollm2-135m"
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

    def __post_init__(self) -> None:
        if self.method not in OPTIONS:
            raise ValueError(f"method must be one of {', '.join(OPTIONS)}, got {self.method!r}")
        self._fill()
        for name in ("batch", "steps", "checkpoint_every", "validate_every", "validation_texts"):
            check_size(name, getattr(self, name))
        for name in ("layers", "heads", "ttt_steps"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        if not isinstance(self.length, int) or self.length < 16:
            raise ValueError(f"length must be a whole number >= 16, got {self.length!r}")
        for name in ("warmup", "seed", "draft_vocab"):
            if not _is(getattr(self, name), int, 0, math.inf):
                raise ValueError(f"{name} must be a whole number >= 0, got {getattr(self, name)!r}")
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
