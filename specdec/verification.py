"""The acceptance rules: probabilities and uniforms in, Verdict out. No model, no generator, no synchronisation with the host.

p is the target, q the draft, K the number of drafted tokens. Every leading axis is a batch axis.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.device import on_host
from specdec.distributions import inverse_cdf, residual
from specdec.tree import Siblings, TokenTree


@dataclass(frozen=True)
class Verdict:
    """What a rule decided.

    count: (...,) int64, how many drafted tokens were accepted.
    next_token: (...,) int64, the token after them: *recovered* from the residual after a rejection, *bonus* after K acceptances.
    path: (D,) node ids of the accepted tokens, -1 behind them; for trees only.
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
            argmax): each is then a point mass, accepted with probability p_i(x). So is the token of a row without mass.
        tokens: (..., K) int64 drafted ids.
        u: (..., K + 1) uniforms in [0, 1): K coins, then the next token by inverse CDF.

    Raises:
        ValueError: if the shapes disagree.
    """
    K = tokens.shape[-1]
    _check(p, q, tokens, u, K)
    q = None if q is None else _declared(q, tokens.unsqueeze(-1))
    drafted = tokens.unsqueeze(-1)  # (..., K, 1)
    p_drafted = p[..., :K, :].gather(-1, drafted).squeeze(-1)  # (..., K)
    q_drafted = torch.ones_like(p_drafted) if q is None else q.gather(-1, drafted).squeeze(-1)
    # u q < p instead of u < p / q: no division, so neither q = 0 nor a half-precision underflow becomes NaN.
    accepted = u[..., :K] * q_drafted < p_drafted
    count = accepted.long().cumprod(-1).sum(-1)  # (...,)
    next_p = _residual_at(count, p, q, tokens)  # (..., V)
    return Verdict(count, inverse_cdf(next_p, u[..., K]))


def verify_block(p: Tensor, q: Tensor | None, tokens: Tensor, u: Tensor) -> Verdict:
    """Block verification (Sun et al. 2403.10444, algorithm 2): judges the draft as a whole, accepts at least as much as `verify_chain`.

    With s_0 = 1 and s_i = min(1, s_{i-1} p(x_i) / q(x_i)), the accepted length is the last i with u_i < h_i, where
    h_i = Z_i / (Z_i + 1 - s_i) with Z_i = Σ (s_i p - q)₊ at the position behind x_i, and h_K = s_K. A failure does not end the
    walk: every coin counts. The next token comes from norm((s_i p - q)₊), or from p after all K.

    Arguments, shapes and errors are those of `verify_chain`.
    """
    K = tokens.shape[-1]
    _check(p, q, tokens, u, K)
    if K == 0:
        return Verdict(torch.zeros_like(u[..., 0], dtype=torch.long), inverse_cdf(p[..., 0, :], u[..., 0]))
    p = p if p.dtype == torch.float64 else p.float()  # s is a product of ratios
    drafted = tokens.unsqueeze(-1)
    q = _declared(torch.zeros_like(p[..., :K, :]) if q is None else q.to(p.dtype), drafted)
    p_drafted, q_drafted = p[..., :K, :].gather(-1, drafted).squeeze(-1), q.gather(-1, drafted).squeeze(-1)
    survival = [torch.ones_like(p_drafted[..., 0])]
    for i in range(K):
        mass = survival[-1] * p_drafted[..., i]
        survival.append(torch.where(mass < q_drafted[..., i], mass / q_drafted[..., i], torch.ones_like(mass)))
    s = torch.stack(survival, -1)  # (..., K + 1)
    excess = (s[..., :K, None] * p[..., :K, :] - q).clamp_min(0)  # (..., K, V)
    Z = excess.sum(-1)[..., 1:]  # behind x_1 … x_{K-1}
    passed = torch.cat([u[..., : K - 1] * (Z + 1 - s[..., 1:K]) < Z, u[..., K - 1 : K] < s[..., K:]], -1)  # (..., K)
    count = (passed * torch.arange(1, K + 1, device=p.device)).amax(-1)
    row = _row(excess, count.clamp_max(K - 1))
    return Verdict(count, inverse_cdf(torch.where(_usable(row, count, K), row, _row(p, count)), u[..., K]))


def _usable(row: Tensor, count: Tensor, K: int) -> Tensor:
    """Where the excess decides the next token: after fewer than K acceptances, unless rounding left it without mass."""
    return ((count < K) & (row.sum(-1) > 0)).unsqueeze(-1)


def verify_tree(p: Tensor, tree: TokenTree, u: Tensor, siblings: Siblings | None = None) -> Verdict:
    """Walks down from the root: at each node its children are tried in order, and the first accepted one is the next node.

    A child x is accepted if u < p(x) / q(x). After a rejection p becomes norm((p - q)₊) for the siblings that are left, and q

    - stays as it is if the siblings were drawn independently ("iid", SpecInfer, Miao et al. 2305.09781, algorithm 2);
    - loses x and is renormalised if they were drawn without replacement (Sequoia, Chen et al. 2402.12374, algorithm 2);
    - if tree.q is None, each child is a point mass: accepted with p(x), and after a rejection x leaves p. So is a child that was
      drawn after q had run out of mass.

    Where no child is accepted, the next token comes from what is left of p; at a leaf, from p itself. The emitted tokens then have
    the target's distribution, given that the tree's shape does not depend on sampled values and siblings stay in the order in
    which they were drawn. The children of point masses may be chosen in any way that does not look at the coins.

    Args:
        p: (..., N + 1, V) target distributions: row 0 at the root, row i + 1 behind node i.
        tree: N nodes, with the same leading axes.
        u: (..., N + 1) uniforms in [0, 1): a coin for each node, then the next token by inverse CDF.
        siblings: tree.siblings if None.

    Returns:
        Verdict(count (...), next_token (...), path (..., D)): the first `count` entries of path are the accepted nodes, the rest is
        -1; D is the depth of the tree. Nothing is copied to the host.

    Raises:
        ValueError: if the shapes disagree or `siblings` is unknown.
    """
    N, batch = len(tree), tree.tokens.shape[:-1]
    if p.dim() < 2 or p.shape[:-1] != (*batch, N + 1) or u.shape != (*batch, N + 1):
        expected = f"p {(*batch, N + 1, 'V')} and u {(*batch, N + 1)}"
        raise ValueError(f"a tree of {N} nodes needs {expected}, got {tuple(p.shape)} and {tuple(u.shape)}")
    if tree.q is not None and tree.q.shape != p.shape:
        raise ValueError(f"tree.q must be {tuple(p.shape)}, got {tuple(tree.q.shape)}")
    siblings = siblings or tree.siblings
    if siblings not in ("without_replacement", "iid"):
        raise ValueError(f"siblings must be 'without_replacement' or 'iid', got {siblings!r}")
    p = p if p.dtype == torch.float64 else p.float()
    parents = tree.parents.expand(tree.tokens.shape)
    if tree.q is None:
        path, left = _judge_point_masses(p, tree, parents, u)
    else:
        path, left = _judge_drawn(p, tree, parents, u, siblings == "iid")
    return Verdict((path >= 0).sum(-1), inverse_cdf(left, u[..., N]), path)


def walk(p: Callable[[int], Tensor], tree: TokenTree, coins: Sequence[float]) -> tuple[list[int], Tensor]:
    """The rules of `verify_tree` as they are told, for one tree on the host: node by node, and at each its children in turn.

    Args:
        p: gives one row of the target's distributions (V,): p(0) at the root, p(i + 1) behind node i. It is asked for the rows on
            the accepted path alone, each once.
        tree: without batch axes.
        coins: N uniforms.

    Returns:
        The ids of the accepted nodes, and what is left of p at the path's end (V,), not normalised: the next token is drawn from it.
    """
    tokens, children, path, at = tree.tokens.tolist(), _children(tree), [], -1
    while True:
        row, family = p(at + 1), children[at]
        row = row if row.dtype == torch.float64 else row.float()
        if tree.q is None:
            accepted, left = _try_point_masses(row, [tokens[child] for child in family], [coins[child] for child in family])
        else:
            drawn = [(tree.tokens[child : child + 1], coins[child]) for child in family]
            accepted, left = _try_drawn(row, tree.q[at + 1].to(row.dtype), drawn, tree.siblings == "iid")
        if accepted is None:
            return path, left
        at = family[accepted]
        path.append(at)


def walk_greedily(best: Callable[[int], int], tree: TokenTree) -> tuple[list[int], int]:
    """`walk` where p is one-hot, with no need of p: a child is accepted if it is the target's choice, and no coin matters.

    best(row) is the token that has all of p(row). Returns the ids of the accepted nodes, and the next token.
    """
    tokens, children, path, at = tree.tokens.tolist(), _children(tree), [], -1
    while True:
        choice = best(at + 1)
        at = next((child for child in children[at] if tokens[child] == choice), None)
        if at is None:
            return path, choice
        path.append(at)


def _children(tree: TokenTree) -> dict[int, list[int]]:
    children = defaultdict(list)
    for node, parent in enumerate(tree.parents.tolist()):
        children[parent].append(node)
    return children


def _try_point_masses(p: Tensor, tokens: list[int], coins: list[float]) -> tuple[int | None, Tensor]:
    """Which of the tokens is accepted, if any is, and what is left of p (V,) if none is."""
    if not tokens:
        return None, p
    ids = torch.tensor(tokens)
    tried: dict[int, float] = {}  # tokens that left p, and what they took with them
    for child, (token, coin, chance) in enumerate(zip(tokens, coins, p[ids].tolist(), strict=True)):
        chance = 0.0 if token in tried else chance
        if coin * (1 - sum(tried.values())) < chance:
            return child, p
        tried.setdefault(token, chance)
    left = p.index_fill(0, ids, 0)
    return None, left if left.sum() > 0 else p


def _try_drawn(p: Tensor, q: Tensor, drawn: list[tuple[Tensor, float]], iid: bool) -> tuple[int | None, Tensor]:
    """The same for tokens (1,), each with its coin, that were drawn from q (V,)."""
    left, proposal = p, q
    for child, (x, coin) in enumerate(drawn):
        declared = _declared(proposal, x)
        if coin * float(declared[x]) < float(left[x]):
            return child, left
        left = residual(left, declared)
        if not iid:
            proposal = _without(proposal, x)
    return None, left


def _judge_point_masses(p: Tensor, tree: TokenTree, parents: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """All nodes at once: after rejections, a child's chance is p(x) over what the siblings tried before it have left of p.

    Returns the path (..., D) and what is left of p at its end (..., V), not normalised.
    """
    N, V = len(tree), p.shape[-1]
    node = torch.arange(N, device=p.device)
    earlier = (parents.unsqueeze(-1) == parents.unsqueeze(-2)) & (node[:, None] > node)  # (..., N, N): sibling j tried before i
    again = (earlier & (tree.tokens.unsqueeze(-1) == tree.tokens.unsqueeze(-2))).any(-1)  # a token that left p already
    p_x = p.flatten(-2).gather(-1, (parents + 1).clamp_min(0) * V + tree.tokens).double()
    p_x = p_x.masked_fill(again | (parents < -1), 0)
    tried = torch.where(earlier, p_x.unsqueeze(-2), 0.0).sum(-1)  # no product: a NaN stays among its siblings
    accepted = u[..., :N] * (1 - tried) < p_x  # if it is tried at all
    first = accepted & ~(earlier & accepted.unsqueeze(-2)).any(-1)
    on_path = (first.unsqueeze(-2) | ~tree.mask).all(-1)  # with all its ancestors
    path = torch.where(on_path, node, N).sort(-1).values[..., : tree.depth]
    path = torch.where(path < N, path, -1)
    at = (on_path * (node + 1)).amax(-1) if N else torch.zeros(p.shape[:-2], dtype=torch.long, device=p.device)
    row = _row(p, at)
    rejected = torch.where(parents == (at - 1).unsqueeze(-1), 0.0, torch.inf).to(
        p.dtype
    )  # 0 for the children that were tried there
    left = row.scatter_reduce(-1, tree.tokens, rejected, "amin")
    return path, torch.where(left.sum(-1, keepdim=True) > 0, left, row)


def _judge_drawn(p: Tensor, tree: TokenTree, parents: Tensor, u: Tensor, iid: bool) -> tuple[Tensor, Tensor]:
    """The walk itself: level by level, and at each node child by child. Returns the path (..., D) and what is left of p at its end."""
    q, families = tree.q.to(p.dtype), _families(tree, parents)
    may_ask = on_host(p.device)
    at, path = torch.zeros(p.shape[:-2], dtype=torch.long, device=p.device), []  # a row: 0 is the root, i + 1 node i
    # Once no child is accepted, the next turns repeat the same decisions; the last turn finds a leaf, or does that.
    for _ in range(tree.depth + 1):
        left, proposal = _row(p, at), _row(q, at)  # (..., V)
        chosen = torch.full_like(at, -1)
        for rank in range(tree.branching):
            child = _row(families, at)[..., rank]
            there, node = child >= 0, child.clamp_min(0).unsqueeze(-1)
            x = tree.tokens.gather(-1, node)
            declared = _declared(proposal, x)
            below = (u.gather(-1, node) * declared.gather(-1, x) < left.gather(-1, x)).squeeze(-1)
            tried = there & (chosen < 0)
            if may_ask and not tried.any():
                break
            chosen = torch.where(tried & below, child, chosen)
            rejected = (tried & ~below).unsqueeze(-1)
            if may_ask and not rejected.any():
                continue
            left = torch.where(rejected, residual(left, declared), left)
            if not iid:
                proposal = torch.where(rejected, _without(proposal, x), proposal)
        path.append(chosen)
        if may_ask and (chosen < 0).all():
            break
        at = torch.where(chosen >= 0, chosen + 1, at)
    walked = torch.stack(path, -1)[..., : tree.depth]
    return F.pad(walked, (0, tree.depth - walked.shape[-1]), value=-1), left


def _declared(q: Tensor, x: Tensor) -> Tensor:
    """What the tokens x (..., 1) were drawn from: q (..., V), or a point mass where q has none."""
    empty = q.sum(-1, keepdim=True) == 0
    if on_host(q.device) and not empty.any():
        return q
    return torch.where(empty, torch.zeros_like(q).scatter(-1, x, 1.0), q)


def _without(q: Tensor, x: Tensor) -> Tensor:
    """q (..., V) less the token x (..., 1), renormalised; all 0 if nothing is left."""
    rest = q.scatter(-1, x, 0.0)
    return rest / rest.sum(-1, keepdim=True).clamp_min(torch.finfo(rest.dtype).tiny)


def _families(tree: TokenTree, parents: Tensor) -> Tensor:
    """(..., N + 1, R): the r-th child of each row's node, -1 where there is none."""
    N, R = len(tree), tree.branching
    node = torch.arange(N, device=parents.device)
    rank = ((parents.unsqueeze(-1) == parents.unsqueeze(-2)) & (node[:, None] > node)).sum(-1)
    place = torch.where(parents >= -1, (parents + 1) * R + rank, (N + 1) * R)  # what is no node goes to a place of its own
    table = torch.full((*parents.shape[:-1], (N + 1) * R + 1), -1, dtype=torch.long, device=parents.device)
    return table.scatter(-1, place, node.expand(parents.shape))[..., :-1].unflatten(-1, (N + 1, R))


def _residual_at(count: Tensor, p: Tensor, q: Tensor | None, tokens: Tensor) -> Tensor:
    """What the next token after `count` acceptances is drawn from, (..., V), not normalised: the residual there, or p after all K."""
    K = tokens.shape[-1]
    p_row = _row(p, count)
    if K == 0:
        return p_row
    where = count.clamp_max(K - 1)
    if q is None:  # the residual of a point mass: the token leaves p
        rest = p_row.scatter(-1, tokens.gather(-1, where.unsqueeze(-1)), 0.0)
        rest = torch.where(rest.sum(-1, keepdim=True) > 0, rest, p_row)
    else:
        rest = residual(p_row, _row(q, where))
    return torch.where((count < K).unsqueeze(-1), rest, p_row)


def _row(x: Tensor, index: Tensor) -> Tensor:
    """x (..., R, V), index (...) → (..., V)."""
    rows = torch.arange(index.numel(), device=x.device) * x.shape[-2] + index.flatten()
    return x.flatten(0, -2).index_select(0, rows).view(*index.shape, x.shape[-1])


def _check(p: Tensor, q: Tensor | None, tokens: Tensor, u: Tensor, K: int) -> None:
    batch = tokens.shape[:-1]
    expected = {"p": (p, (*batch, K + 1, p.shape[-1])), "u": (u, (*batch, K + 1))}
    if q is not None:
        expected["q"] = (q, (*batch, K, p.shape[-1]))
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            raise ValueError(f"{name} must be {shape} for tokens {tuple(tokens.shape)}, got {tuple(tensor.shape)}")
