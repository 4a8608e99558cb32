"""specdec: speculative decoding, every method on a real language model.

    from specdec import PromptLookup, generate, load_model
    generate(load_model("smollm2-135m"), "def fibonacci(n):", PromptLookup(ngram=3, k=8)).text

`specdec.law`, `specdec.theory` and `specdec.statistics` need nothing but Python. What needs torch is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from specdec.law import law, law_distance  # at once: `law` is the name of its module, too
from specdec.theory import expected_tokens, optimal_k, speedup

if TYPE_CHECKING:
    from specdec.cache import CacheFull, KVCache
    from specdec.config import Config
    from specdec.decoding import generate, stream
    from specdec.distributions import Sampling, acceptance_rate, kl_divergence, residual, total_variation
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
        Outcome,
        PromptLookup,
        Proposer,
    )
    from specdec.models import CheckpointError, Transformer, load_model, random_model
    from specdec.results import Generation, Round, Stats
    from specdec.tree import TokenTree
    from specdec.uniforms import Purpose, Uniforms
    from specdec.verification import Verdict, verify_block, verify_chain, verify_tree

__all__ = [
    "CacheFull", "CheckpointError", "Combine", "Config", "DistilledDraft", "DraftModel", "Drafter", "Eagle", "EagleHead", "Generation",
    "KVCache", "Lookahead", "Medusa", "MedusaHeads", "Outcome", "PromptLookup", "Proposer", "Purpose", "Round", "Sampling", "Stats",
    "TokenTree", "Transformer", "Uniforms", "Verdict", "acceptance_rate", "expected_tokens", "generate", "kl_divergence", "law",
    "law_distance", "load_model", "optimal_k", "random_model", "residual", "speedup", "stream", "total_variation",
    "verify_block", "verify_chain", "verify_tree",
]

_LATER = {
    "cache": ("CacheFull", "KVCache"),
    "config": ("Config",),
    "decoding": ("generate", "stream"),
    "distributions": ("Sampling", "acceptance_rate", "kl_divergence", "residual", "total_variation"),
    "drafters": (
        "Combine", "DistilledDraft", "Drafter", "DraftModel", "Eagle", "EagleHead", "Lookahead", "Medusa", "MedusaHeads", "Outcome",
        "PromptLookup", "Proposer",
    ),
    "models": ("CheckpointError", "Transformer", "load_model", "random_model"),
    "results": ("Generation", "Round", "Stats"),
    "tree": ("TokenTree",),
    "uniforms": ("Purpose", "Uniforms"),
    "verification": ("Verdict", "verify_block", "verify_chain", "verify_tree"),
}  # fmt: skip
_HOME = {name: module for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"specdec.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
