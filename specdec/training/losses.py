"""What a draft is trained on: Medusa-1, EAGLE-1, EAGLE-3 and distillation. Each takes whole texts and returns one number.

The target stays as it is. Where its LM head is shared, the gradient runs through it, and so it must not be packed.

Texts of different lengths stand in one batch with padding at their ends. `mask` (B, T) bool is True where a token is real; what
would be learned about or from padding does not count, and every mean is over what is left. None: all tokens are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.drafters.eagle_head import EagleHead
from specdec.models.transformer import Transformer

Kind = Literal["kl", "overlap"]  # KL(p‖q), or 1 - Σ min(p, q): the chance that a token drawn from q is rejected
CHUNK = 256  # rows that `scored_loss` holds the distributions of at one time


def distillation_loss(p_logits: Tensor, q_logits: Tensor, mask: Tensor | None = None, kind: Kind = "kl") -> Tensor:
    """KL(p‖q) of the target's and a draft's distributions at temperature 1, the mean over all positions (the forward KL of
    DistillSpec, Zhou et al. 2310.08461), or the mean of 1 - Σ min(p, q), their total variation.

    p_logits, q_logits: (..., V); mask: (...) or None → (), KL in nats. No gradient for p.
    """
    log_p, log_q = p_logits.detach().log_softmax(-1), q_logits.log_softmax(-1)
    if kind == "kl":
        return _mean((log_p.exp() * (log_p - log_q)).sum(-1), mask)
    return _mean(1 - torch.minimum(log_p.exp(), log_q.exp()).sum(-1), mask)


def scored_loss(x: Tensor, weight: Tensor, p: Tensor, mask: Tensor | None = None, kind: Kind = "kl") -> Tensor:
    """The mean over all positions of -Σ p log q, or of 1 - Σ min(p, q), where q = softmax(x Wᵀ).

    The cross-entropy is KL(p‖q) and the entropy of p, which no draft can change. The same as written with PyTorch's own functions,
    in half their time and a fraction of their memory: loss and gradient are computed together, CHUNK rows at a time, and the
    distributions are forgotten.

    Args:
        x: (..., D), what the LM head reads.
        weight: (n, D), its rows of the n tokens that are scored.
        p: (..., n), the target's probabilities of these tokens.
        mask: (...) bool or None.
    """
    x, p = (x.flatten(0, -2), p.flatten(0, -2)) if mask is None else (x[mask], p[mask])
    return _ScoredLoss.apply(x, weight, p, kind) / max(len(x), 1)


class _ScoredLoss(torch.autograd.Function):
    """Σ over the rows of x (m, D)."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, p: Tensor, kind: Kind) -> Tensor:
        dx, dw, total = torch.empty_like(x), torch.zeros_like(weight) if ctx.needs_input_grad[1] else None, p.new_zeros(())
        for start in range(0, len(x), CHUNK):
            rows = slice(start, start + CHUNK)
            log_q = F.linear(x[rows], weight).log_softmax(-1)
            if kind == "kl":
                total -= torch.dot(p[rows].flatten(), log_q.to(p.dtype).flatten())
                slope = log_q.exp_().mul_(p[rows].sum(-1, keepdim=True)).sub_(p[rows])  # by the logits
            else:
                q = log_q.exp_()
                total += (1 - torch.minimum(p[rows], q).sum(-1)).sum()
                short = q * (q < p[rows])  # where more q would mean more overlap
                slope = q.mul_(short.sum(-1, keepdim=True)).sub_(short)
            dx[rows] = slope.to(weight.dtype) @ weight
            if dw is not None:
                dw += slope.to(x.dtype).T @ x[rows]
        ctx.save_for_backward(dx, dw)
        return total

    @staticmethod
    def backward(ctx, above: Tensor):
        dx, dw = ctx.saved_tensors
        return above * dx, None if dw is None else above * dw, None, None


def medusa_loss(logits: Tensor, tokens: Tensor, decay: float = 0.8, mask: Tensor | None = None) -> Tensor:
    """Σ_k decay^k · cross-entropy of head k, k = 1 … K: at position t it is to say token t + 1 + k (Medusa-1, 2401.10774, section 2.2.1).

    Args:
        logits: (B, T, K, V), of the heads at every position of the texts.
        tokens: (B, T) int64, the texts.

    Returns:
        (): each head's cross-entropy is the mean over the positions that have such a token.

    Raises:
        ValueError: if the texts are too short for the last head: T must be at least K + 2.
    """
    K = logits.shape[2]
    check_medusa(tokens, K)
    ahead = range(1, K + 1)
    losses = [
        _mean(F.cross_entropy(logits[:, : -1 - k, k - 1].mT, tokens[:, 1 + k :], reduction="none"), after(mask, 1 + k))
        for k in ahead
    ]
    return sum(decay**k * loss for k, loss in zip(ahead, losses, strict=True))


def check_medusa(tokens: Tensor, heads: int) -> None:
    """Raises ValueError if the texts (B, T) are too short for the last head."""
    if tokens.shape[1] < heads + 2:
        raise ValueError(f"head {heads} looks {heads + 1} tokens ahead, the texts have {tokens.shape[1]} tokens")


def eagle1_loss(
    head: EagleHead, target: Transformer, tokens: Tensor, hidden: Tensor, weight: float = 0.1, mask: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Smooth-L1 between the head's own features and the target's, plus `weight` times the cross-entropy of the target's distribution
    behind them (EAGLE-1, 2401.15077, section 3.2).

    Pair t, hidden[t] with token t + 1, is to become hidden[t + 1], and behind it the target's LM head is to say what it says there.

    Args:
        head: of version 1.
        tokens: (B, T) int64, the texts.
        hidden: (B, T, D), the target's `Output.hidden` on them.
        rows: (n, D), the LM head's rows of the tokens that the cross-entropy is over, in place of all; both distributions are then
            renormalised over these.

    Returns:
        (): the mean over all T - 1 pairs (and the D numbers of a feature).

    Raises:
        ValueError: if the head is not of version 1, or the target's LM head is packed and no rows are given.
    """
    _check_version(head, 1)
    rows = target.head.weight if rows is None else rows
    if rows is None:
        raise ValueError("no gradient can pass through a packed LM head; load the target in float32")
    own, wanted, mask = next(own_features(head, target, tokens, hidden, steps=1)), hidden[:, 1:], after(mask, 1)
    with torch.no_grad():
        p = F.linear(wanted, rows).softmax(-1)
    return _mean(F.smooth_l1_loss(own, wanted, reduction="none").mean(-1), mask) + weight * scored_loss(own, rows, p, mask)


def eagle3_loss(
    head: EagleHead, target: Transformer, tokens: Tensor, layers: Tensor, target_logits: Tensor, steps: int = 5, decay: float = 0.8,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Training-time test: the cross-entropy of the target's distribution at every step of a rollout on the head's own features, step s
    of 1 … steps with weight decay^(s - 1) (EAGLE-3, 2503.01840, section 3.2; the weights are those of its published code).

    Tokens that the head does not score carry no weight: the minimum is the target's distribution, renormalised over those it scores.

    Args:
        head: of version 3.
        tokens: (B, T) int64, the texts.
        layers: (B, T, n D), the target's `Output.layers` on them, of head.config.layers.
        target_logits: (B, T, V), the target's.

    Returns:
        (): the mean of each step is over its T - s rows.

    Raises:
        ValueError: if the head is not of version 3, or there are fewer than steps + 1 tokens.
    """
    _check_version(head, 3)
    return training_time_test(
        head, target, tokens, layers, target_logits.detach().softmax(-1)[..., head.ids], steps, decay, mask
    )


def training_time_test(
    head: EagleHead, target: Transformer, tokens: Tensor, layers: Tensor, p: Tensor, steps: int = 5, decay: float = 0.8,
    mask: Tensor | None = None, kind: Kind = "kl",
) -> Tensor:  # fmt: skip
    """`eagle3_loss` of p (B, T, scored), the target's probabilities of the tokens that the head scores; or its like with
    1 - Σ min(p, q) in place of the cross-entropy."""
    _check_version(head, 3)
    loss = p.new_zeros(())
    for step, own in enumerate(own_features(head, target, tokens, head.features(None, layers), steps), 1):
        term = scored_loss(head.norm(own), head.head.weight, p[:, step:], after(mask, step), kind)
        loss = loss + decay ** (step - 1) * term
    return loss


def _check_version(head: EagleHead, version: int) -> None:
    if head.config.version != version:
        raise ValueError(f"this is the loss of version {version}, got a head of version {head.config.version}")


def after(mask: Tensor | None, n: int) -> Tensor | None:
    """The mask of what is said n tokens ahead: it counts where the token that stands there is real. (B, T) → (B, T - n)."""
    return None if mask is None else mask[:, n:]


def _mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """The mean where the mask is True; 0 where it is nowhere."""
    return values.mean() if mask is None else (values * mask).sum() / mask.sum().clamp_min(1)


def rollout(
    head: EagleHead, target: Transformer, tokens: Tensor, features: Tensor, steps: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The head as it drafts, from every position of a text at once (EAGLE-3's training-time test, 2503.01840, section 3.2, figure 6).

    Step 1 runs all pairs (feature t, token t + 1). Step s runs, in row t, the head's own feature of row t from the step before with
    token t + s: the s-th node of a chain that was drafted behind pair t. It sees the pairs 0 … t of step 1, and of the later steps
    its own row alone.

    Args:
        tokens: (B, T) int64.
        features: (B, T, D), what the head reads of the target.

    Yields:
        For each step s (own features (B, T - s, D), logits (B, T - s, scored)). Row t stands for position t + s: its feature, and
        what the head says about token t + s + 1.

    Raises:
        ValueError: if steps < 1, or the text is too short for a row of the last step.
    """
    for own in own_features(head, target, tokens, features, steps):
        yield own, head.logits(target, own)


def own_features(head: EagleHead, target: Transformer, tokens: Tensor, features: Tensor, steps: int) -> Iterator[Tensor]:
    """`rollout` without the logits."""
    T = tokens.shape[1]
    if not 1 <= steps < T:
        raise ValueError(f"steps must lie in [1, {T - 1}] for texts of {T} tokens, got {steps}")
    seen = _Rollout()
    for step in range(1, steps + 1):
        n = T - step
        positions = torch.arange(step - 1, T - 1, device=tokens.device)
        features = head(target, tokens[:, step:], features[:, :n], seen, positions)
        yield features


class _Rollout:
    """A view (`specdec.models.attention`) without a cache: it keeps the keys and values of every step, and the gradient can pass."""

    def __init__(self):
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (B, heads, n, head_dim), k and v (B, kv_heads, n, head_dim) → (B, heads, n, head_dim)."""
        n = q.shape[-2]
        # Rows from n on began too near the end of the text to come this far; those before n never look at them.
        self.keys = [*(keys[:, :, :n] for keys in self.keys), k]
        self.values = [*(values[:, :, :n] for values in self.values), v]
        causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
        itself = torch.eye(n, dtype=torch.bool, device=q.device)
        mask = torch.cat([causal, *[itself] * (len(self.keys) - 1)], dim=-1)  # (n, n · steps)
        keys, values = torch.cat(self.keys, dim=-2), torch.cat(self.values, dim=-2)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
