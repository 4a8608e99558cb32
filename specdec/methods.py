"""Every method by its name, with settings that suit a small target: what the command line and the benchmarks choose from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from specdec.drafters import (
    Combine,
    DistilledDraft,
    Drafter,
    DraftModel,
    Eagle,
    EagleHead,
    Lookahead,
    Medusa,
    MedusaHeads,
    PromptLookup,
)
from specdec.models import SMOLLM2, Transformer
from specdec.models.checkpoints import GPT
from specdec.tree import full_tree


@dataclass(frozen=True)
class Settings:
    """What a method may be told; each reads what it knows.

    k: tokens of a chain (draft-model, distilled, prompt-lookup).
    layers: draft-model: so many of the target's first layers are the draft; None: a third of them.
    tree: children of a node, level by level, in place of a chain (draft-model, distilled) or of the usual tree (medusa, eagle-1).
    depth, beam, budget: eagle-2, eagle-3: levels, nodes that are expanded in each and children of each, nodes that are kept.
    ngram: prompt-lookup: the longest suffix to look for; lookahead: the length of its n-grams.
    candidates: prompt-lookup: occurrences to copy from.
    window, pool: lookahead: columns of guesses, n-grams kept for each token.
    weights: trained heads (distilled, medusa, eagle-1, -2, -3), a file; random ones without, which are exact and guess nothing right.
        `weights_of` names those that are part of the package.
    """

    k: int = 8
    layers: int | None = None
    tree: tuple[int, ...] | None = None
    depth: int = 4
    beam: int = 2
    budget: int = 7
    ngram: int = 3
    candidates: int = 1
    window: int = 3
    pool: int = 2
    weights: Path | None = None

    def __post_init__(self) -> None:
        if self.beam < 1:  # to Eagle it is one of two things, called top_k
            raise ValueError(f"beam must be >= 1, got {self.beam}")

    def layers_of(self, target: Transformer) -> int:
        return max(target.config.layers // 3, 1) if self.layers is None else self.layers

    @property
    def parents(self) -> list[int]:
        return full_tree(self.tree or (2, 1, 1))


def _draft_model(target: Transformer, s: Settings) -> Drafter:
    return DraftModel(target.truncated(s.layers_of(target)), s.k, None if s.tree is None else full_tree(s.tree))


def _distilled(target: Transformer, s: Settings) -> Drafter:
    made = DistilledDraft.load(s.weights, target) if s.weights else DistilledDraft.random(target)
    return DraftModel(made.beside(target), s.k, None if s.tree is None else full_tree(s.tree))


def _medusa(target: Transformer, s: Settings) -> Drafter:
    heads = MedusaHeads.load(s.weights, target) if s.weights else MedusaHeads.random(target, heads=len(s.tree or (2, 1, 1)))
    return Medusa(heads, s.parents)


def _eagle_head(target: Transformer, s: Settings, version: int) -> EagleHead:
    if s.weights:
        return EagleHead.load(s.weights, target)
    frequent = range(min(8192, target.config.vocab_size))  # the first merges of a byte-pair vocabulary
    return EagleHead.random(target, version, ids=list(frequent) if version == 3 else None)


METHODS: dict[str, Callable[[Transformer, Settings], Drafter]] = {
    "draft-model": _draft_model,
    "distilled": _distilled,
    "medusa": _medusa,
    "eagle-1": lambda target, s: Eagle(_eagle_head(target, s, 1), tree=s.parents),
    "eagle-2": lambda target, s: Eagle(_eagle_head(target, s, 1), s.depth, s.beam, s.budget),
    "eagle-3": lambda target, s: Eagle(_eagle_head(target, s, 3), s.depth, s.beam, s.budget),
    "lookahead": lambda target, s: Lookahead(s.window, s.ngram, s.pool),
    "prompt-lookup": lambda target, s: PromptLookup(s.ngram, s.k, candidates=s.candidates),
}


# What each method reads of the Settings.
READS = {
    "draft-model": ("k", "layers", "tree"),
    "distilled": ("k", "tree", "weights"),
    "medusa": ("tree", "weights"),
    "eagle-1": ("tree", "weights"),
    "eagle-2": ("depth", "beam", "budget", "weights"),
    "eagle-3": ("depth", "beam", "budget", "weights"),
    "lookahead": ("window", "ngram", "pool"),
    "prompt-lookup": ("ngram", "k", "candidates"),
}
HEADS = tuple(method for method, names in READS.items() if "weights" in names)  # methods that need training
ALIASES = {"eagle": "eagle-3", "distill": "distilled"}  # as `specdec train` has it, too
WEIGHTS = Path(__file__).parent / "weights"  # heads for SmolLM2-135M, and below it for the small GPT
FILES = {"eagle-2": "eagle-1"}  # a method's lie under its own name, but for these


def canonical(name: str) -> str:
    """The name without aliases, part by part."""
    return "+".join(ALIASES.get(part, part) for part in name.split("+"))


def heads_of(model: str) -> Path | None:
    """The folder where a model's trained heads lie: in the package for those that it has some for, else the model's own directory."""
    folder = {SMOLLM2: WEIGHTS, GPT: WEIGHTS / GPT}.get(model, Path(model))
    return folder if folder.is_dir() else None


def weights_of(method: str, folder: Path | None = WEIGHTS) -> Path | None:
    """The file of a method's trained heads in a folder, if there is one."""
    path = folder and folder / f"{FILES.get(method, method)}.safetensors"
    return path if path and path.is_file() else None


def has_random_heads(name: str, folder: Path | None) -> bool:
    """Whether a part of the name needs trained heads, and the folder has none for it."""
    return any(part in HEADS and weights_of(part, folder) is None for part in canonical(name).split("+"))


def check_read(name: str, given: Collection[str]) -> None:
    """Raises ValueError at the first of the given Settings that no part of the name reads."""
    read = dict.fromkeys(setting for part in canonical(name).split("+") for setting in READS.get(part, ()))
    for setting in given:
        if setting not in read:
            known = f"; it reads {', '.join(f'--{one}' for one in read)}" if read else ""
            raise ValueError(f"{name} does not read --{setting}{known}")


def build(name: str, target: Transformer, settings: Settings = Settings(), folder: Path | None = None) -> Drafter | None:
    """The drafter of that name for this target; None for "none". Names joined by + make one tree out of their trees (`Combine`).

    Args:
        folder: where heads are looked for (`weights_of`) if the settings name no file; None: nowhere.

    Raises:
        ValueError: if the name is unknown, or a setting does not fit.
    """
    if name == "none":
        return None
    parts = canonical(name).split("+")
    for part in parts:
        if part not in METHODS:
            raise ValueError(f"unknown drafter {part!r}; choose from none, {', '.join(METHODS)}, or several joined by +")
    found = {part: settings.weights or weights_of(part, folder) for part in parts}
    first, *others = (METHODS[part](target, replace(settings, weights=found[part])) for part in parts)
    for other in others:
        first = Combine(first, other)
    return first
