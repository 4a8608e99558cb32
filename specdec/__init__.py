"""specdec: speculative decoding, every method on a real language model.

    from specdec import PromptLookup, generate, load_model
    generate(load_model("smollm2-135m"), "def fibonacci(n):", PromptLookup(ngram=3, k=8)).text
"""

from importlib import import_module
from typing import Any

from specdec.law import law, law_distance  # at once: a module that is imported later would take the function's name
from specdec.theory import expected_tokens, optimal_k, speedup

# What needs torch is imported when it is asked for, so that those who want an exact law, or a speedup, have it without.
_LATER = {
    "cache": ("CacheFull", "KVCache"),
    "config": ("Config",),
    "decoding": ("generate", "stream"),
    "distributions": ("Sampling", "acceptance_rate", "kl_divergence", "residual", "total_variation"),
    "drafters": ("Combine", "DraftModel", "Eagle", "EagleHead", "Lookahead", "Medusa", "MedusaHeads", "PromptLookup"),
    "models": ("CheckpointError", "Transformer", "load_model", "random_model"),
    "results": ("Generation", "Round", "Stats"),
    "tree": ("TokenTree",),
    "verification": ("Verdict", "verify_block", "verify_chain", "verify_tree"),
}
_WHERE = {name: module for module, names in _LATER.items() for name in names}

__all__ = [
    "CacheFull", "CheckpointError", "Combine", "Config", "DraftModel", "Eagle", "EagleHead", "Generation", "KVCache", "Lookahead", "Medusa",
    "MedusaHeads", "PromptLookup", "Round", "Sampling", "Stats",
    "TokenTree", "Transformer", "Verdict", "acceptance_rate", "expected_tokens", "generate", "kl_divergence", "law",
    "law_distance", "load_model", "optimal_k", "random_model", "residual", "speedup", "stream", "total_variation",
    "verify_block", "verify_chain", "verify_tree",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'specdec' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"specdec.{_WHERE[name]}"), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
