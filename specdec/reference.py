"""Speculative decoding on one page: a draft model guesses a chain of tokens, the target checks them in one forward. Read this first.

Everything else in this library is this page made general: trees in place of chains, batches, other drafters, devices that must not wait,
forwards of one fixed shape. `specdec.decoding.generate` with a `DraftModel` emits the same tokens from the same uniforms (a test says so).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.cache import KVCache
from specdec.distributions import Sampling, inverse_cdf, residual
from specdec.models.transformer import Transformer
from specdec.uniforms import Purpose, Uniforms

Model = tuple[Transformer, KVCache]  # a model, with the keys and values of the tokens that it has seen


@torch.inference_mode()
def speculative_round(
    target: Model, draft: Model, committed: Sequence[int], k: int, sampling: Sampling, uniforms: Uniforms
) -> list[int]:
    """One round (Leviathan et al. 2211.17192, algorithm 1): 1 to k + 1 tokens that follow the target's distribution exactly.

    committed: the text so far, at least one token. Both caches hold a beginning of it; afterwards they hold no token that was rejected.
    """
    n = len(committed)

    # 1. Draft k tokens, one after the other, each drawn from the draft's distribution q.
    tokens, q, u = [], [], uniforms.draw(Purpose.DRAFT, n, k)
    for i in range(k):
        q.append(sampling.probabilities(_logits(draft, [*committed, *tokens], rows=1)[0]))  # (V,)
        tokens.append(int(inverse_cdf(q[i], u[i])))

    # 2. Verify: one forward of the target gives its distributions p at all k + 1 positions.
    p = sampling.probabilities(_logits(target, [*committed, *tokens], rows=k + 1))  # (k + 1, V)

    # 3. Accept token x with probability min(1, p(x) / q(x)), up to the first that is rejected.
    coins, accepted = uniforms.draw(Purpose.VERIFY, n, k), 0
    while accepted < k and coins[accepted] * q[accepted][tokens[accepted]] < p[accepted][tokens[accepted]]:
        accepted += 1
    # A rejected token is replaced by a *recovered* one from norm((p - q)₊). If none was rejected, a *bonus* token comes from p.
    next_p = residual(p[accepted], q[accepted]) if accepted < k else p[k]
    next_token = int(inverse_cdf(next_p, uniforms.draw(Purpose.NEXT, n, 1)[0]))

    # 4. Keep what was accepted. The next token is in no cache yet: the next round begins with it.
    for _, cache in (target, draft):
        cache.rollback(min(cache.length, n + accepted))
    return [*tokens[:accepted], next_token]


def speculative_decode(
    target: Transformer, draft: Transformer, prompt: Sequence[int], k: int, sampling: Sampling, new_tokens: int, seed: int = 0
) -> list[int]:
    """`new_tokens` tokens after the prompt, round by round."""
    length = len(prompt) + new_tokens
    committed, models = list(prompt), [(model, model.new_cache(length)) for model in (target, draft)]
    while (room := length - len(committed)) > 0:
        committed += speculative_round(*models, committed, min(k, room - 1), sampling, Uniforms(seed))
    return committed[len(prompt) :]


def _logits(model: Model, text: Sequence[int], rows: int) -> Tensor:
    """(rows, V): what the model says after each of the last `rows` tokens of the text. It reads those that its cache lacks."""
    transformer, cache = model
    new = torch.tensor([text[cache.length :]], device=transformer.device)
    return transformer(new, cache, rows=rows).logits[0]
