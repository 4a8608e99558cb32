"""DraftModel: a smaller model of the same vocabulary guesses K tokens, one after the other (Leviathan et al. 2211.17192)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specdec.distributions import Sampling, inverse_cdf
from specdec.models.transformer import Output, Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Purpose, Uniforms


@dataclass(frozen=True)
class DraftModel:
    """Args: model, any model whose ids mean what the target's mean (`target.truncated(n)` for one); k, tokens a round, >= 0."""

    model: Transformer
    k: int

    def __post_init__(self) -> None:
        if self.k < 0:
            raise ValueError(f"k must be >= 0, got {self.k}")

    @property
    def max_nodes(self) -> int:
        return self.k

    def start(self, target: Transformer, sampling: Sampling, max_length: int) -> _Proposer:
        """Raises ValueError if the vocabularies differ or the draft's context is shorter than max_length."""
        ours, theirs = self.model.config, target.config
        if ours.vocab_size != theirs.vocab_size:
            raise ValueError(f"the draft has a vocabulary of {ours.vocab_size} tokens and the target of {theirs.vocab_size}")
        pair = self.model.tokenizer, target.tokenizer
        if None not in pair and not pair[0].same_vocabulary(pair[1]):
            raise ValueError("the draft's tokenizer gives the same ids another meaning than the target's")
        if max_length > ours.max_length:
            raise ValueError(f"the request may reach {max_length} tokens and the draft's context ends at {ours.max_length}")
        return _Proposer(self.model, self.k, sampling, max_length)


class _Proposer:
    def __init__(self, model: Transformer, k: int, sampling: Sampling, max_length: int):
        self.model, self.k, self.sampling = model, k, sampling
        self.cache = model.new_cache(max_length)
        self.root = 0  # committed tokens when the present tree was drafted

    def propose(self, committed: list[int], limit: int, uniforms: Uniforms) -> TokenTree:
        k = min(self.k, limit)
        if k == 0:
            return TokenTree.empty(self.model.device)
        self.root = len(committed)
        # What the cache lacks: the newest token, and after a full acceptance the last drafted one too.
        new = torch.tensor([committed[self.cache.length :]], device=self.model.device)
        u = uniforms.draw(Purpose.DRAFT, len(committed), k).to(self.model.device)
        tokens, rows = [], []
        for step in range(k):
            logits = self.model(new, self.cache, rows=1).logits[0, -1]
            q = self.sampling.probabilities(logits)  # (V,)
            token = inverse_cdf(q, u[step])
            tokens.append(token)
            rows.append(q)
            new = token.view(1, 1)
        return TokenTree.chain(torch.stack(tokens), torch.stack(rows))

    def observe(self, accepted: list[int], output: Output) -> None:
        """The cache keeps the accepted drafts; the last drafted token was never run through the model."""
        self.cache.rollback(min(self.cache.length, self.root + len(accepted)))
