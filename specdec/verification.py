"""The acceptance rules: probabilities and uniforms in, Verdict out. No model, no generator, no synchronisation with the host.

p is the target, q the draft, K the number of drafted tokens. Every leading axis is a batch axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.distributions import inverse_cdf, residual


@dataclass(frozen=True)
class Verdict:
    """What a rule decided.

    count: (...,) int64, how many drafted tokens were accepted.
    next_token: (...,) int64, the token after them: *recovered* from the residual after a rejection, *bonus* after K acceptances.
    path: node ids of the accepted tokens, for trees only.
    """

    count: Tensor
    next_token: Tensor
    path: Tensor | None = None


def verify_chain(p: Tensor, q: Tensor | None, tokens: Tensor, u: Tensor) -> Verdict:
    """Token-by-token rejection sampling (Leviathan et al. 2211.17192, algorithm 1; Chen et al. 2302.01318, algorithm 2).

    Drafted token x at position i is accepted if u_i < p_i(x) / q_i(x). The first rejection replaces x by a draw from
    norm((p_i - q_i)₊); if all K are accepted, one more token is drawn from p_K. The emitted tokens are distributed exactly as
    the target's own. Temperature 0 needs no special case: one-hot p and q give the greedy rule.

    Args:
        p: (..., K + 1, V) target distributions, row i the one that drafted token i was to be drawn from.
        q: (..., K, V) distributions that the tokens were drawn from; None if the tokens were not drawn at random (an n-gram, an
            argmax): each is then a point mass, accepted with probability p_i(x).
        tokens: (..., K) int64 drafted ids.
        u: (..., K + 1) uniforms in [0, 1): K coins, then the next token by inverse CDF.

    Raises:
        ValueError: if the shapes disagree.
    """
    K = tokens.shape[-1]
    _check(p, q, tokens, u, K)
    drafted = tokens.unsqueeze(-1)  # (..., K, 1)
    p_drafted = p[..., :K, :].gather(-1, drafted).squeeze(-1)  # (..., K)
    q_drafted = torch.ones_like(p_drafted) if q is None else q.gather(-1, drafted).squeeze(-1)
    # u q < p instead of u < p / q: no division, so neither q = 0 nor a half-precision underflow becomes NaN.
    accepted = u[..., :K] * q_drafted < p_drafted
    count = accepted.long().cumprod(-1).sum(-1)  # (...,)
    next_p = _residual_at(count, p, q, tokens)  # (..., V)
    return Verdict(count, inverse_cdf(next_p, u[..., K]))


def _residual_at(count: Tensor, p: Tensor, q: Tensor | None, tokens: Tensor) -> Tensor:
    """The distribution (..., V) of the next token after `count` acceptances: the residual there, or p after all K."""
    K = tokens.shape[-1]
    p_row = _row(p, count)
    if K == 0:
        return p_row
    where = count.clamp_max(K - 1)
    if q is None:
        rejected = tokens.gather(-1, where.unsqueeze(-1))
        q_row = torch.zeros_like(p_row).scatter_(-1, rejected, 1.0)
    else:
        q_row = _row(q, where)
    return torch.where((count < K).unsqueeze(-1), residual(p_row, q_row), p_row)


def _row(x: Tensor, index: Tensor) -> Tensor:
    """x (..., R, V), index (...) → (..., V)."""
    return x.gather(-2, index[..., None, None].expand(*index.shape, 1, x.shape[-1])).squeeze(-2)


def _check(p: Tensor, q: Tensor | None, tokens: Tensor, u: Tensor, K: int) -> None:
    batch = tokens.shape[:-1]
    expected = {"p": (p, (*batch, K + 1, p.shape[-1])), "u": (u, (*batch, K + 1))}
    if q is not None:
        expected["q"] = (q, (*batch, K, p.shape[-1]))
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            raise ValueError(f"{name} must be {shape} for tokens {tuple(tokens.shape)}, got {tuple(tensor.shape)}")
