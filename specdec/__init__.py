"""specdec: speculative decoding, every method on a real language model.

    from specdec import PromptLookup, generate, load_model
    generate(load_model("smollm2-135m"), "def fibonacci(n):", PromptLookup(ngram=3, k=8)).text
"""

from specdec.cache import CacheFull, KVCache
from specdec.config import Config
from specdec.decoding import generate, stream
from specdec.distributions import Sampling, acceptance_rate, kl_divergence, residual, total_variation
from specdec.drafters import Combine, DraftModel, Eagle, EagleHead, Lookahead, Medusa, MedusaHeads, PromptLookup
from specdec.law import law, law_distance
from specdec.models import CheckpointError, Transformer, load_model, random_model
from specdec.results import Generation, Round, Stats
from specdec.theory import expected_tokens, optimal_k, speedup
from specdec.tree import TokenTree
from specdec.verification import Verdict, verify_block, verify_chain, verify_tree

__all__ = [
    "CacheFull", "CheckpointError", "Combine", "Config", "DraftModel", "Eagle", "EagleHead", "Generation", "KVCache", "Lookahead", "Medusa",
    "MedusaHeads", "PromptLookup", "Round", "Sampling", "Stats",
    "TokenTree", "Transformer", "Verdict", "acceptance_rate", "expected_tokens", "generate", "kl_divergence", "law",
    "law_distance", "load_model", "optimal_k", "random_model", "residual", "speedup", "stream", "total_variation",
    "verify_block", "verify_chain", "verify_tree",
]
