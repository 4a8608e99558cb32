"""What a draft is trained on: Medusa-1, EAGLE-1, EAGLE-3 and distillation. Each takes whole texts and returns one number.

The target stays as it is. Where its LM head is shared, the gradient runs through it, and so it must not be packed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.drafters.eagle_head import EagleHead
from specdec.models.transformer import Transformer


def distillation_loss(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """KL(p‖q) of the target's and a draft's distributions at temperature 1, the mean over all positions (the forward KL of
    DistillSpec, Zhou et al. 2310.08461).

    p_logits, q_logits: (..., V) → (), in nats. No gradient for p.
    """
    log_p, log_q = p_logits.detach().log_softmax(-1), q_logits.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()


def medusa_loss(logits: Tensor, tokens: Tensor, decay: float = 0.8) -> Tensor:
    """Σ_k decay^k · cross-entropy of head k, k = 1 … K: at position t it is to say token t + 1 + k (Medusa-1, 2401.10774, section 2.2.1).

    Args:
        logits: (B, T, K, V), of the heads at every position of the texts.
        tokens: (B, T) int64, the texts.

    Returns:
        (): each head's cross-entropy is the mean over the positions that have such a token.

    Raises:
        ValueError: if the texts are too short for the last head: T must be at least K + 2.
    """
    T, K = logits.shape[1:3]
    if T < K + 2:
        raise ValueError(f"head {K} looks {K + 1} tokens ahead, the texts have {T} tokens")
    ahead = range(1, K + 1)
    losses = [F.cross_entropy(logits[:, : T - 1 - k, k - 1].flatten(0, 1), tokens[:, 1 + k :].flatten()) for k in ahead]
    return sum(decay**k * loss for k, loss in zip(ahead, losses, strict=True))


def eagle1_loss(head: EagleHead, target: Transformer, tokens: Tensor, hidden: Tensor, weight: float = 0.1) -> Tensor:
    """Smooth-L1 between the head's own features and the target's, plus `weight` times the cross-entropy of the target's distribution
    behind them (EAGLE-1, 2401.15077, section 3.2).

    Pair t, hidden[t] with token t + 1, is to become hidden[t + 1], and behind it the target's LM head is to say what it says there.

    Args:
        head: of version 1.
        tokens: (B, T) int64, the texts.
        hidden: (B, T, D), the target's `Output.hidden` on them.

    Returns:
        (): the mean over all T - 1 pairs (and the D numbers of a feature).

    Raises:
        ValueError: if the head is not of version 1, or the target's LM head is packed.
    """
    if head.config.version != 1:
        raise ValueError(f"this is the loss of version 1, got a head of version {head.config.version}")
    if target.head.weight is None:
        raise ValueError("no gradient can pass through a packed LM head; load the target in float32")
    (own, logits), wanted = next(rollout(head, target, tokens, hidden, steps=1)), hidden[:, 1:]
    with torch.no_grad():
        p = target.head(wanted).softmax(-1)
    return F.smooth_l1_loss(own, wanted) + weight * _cross_entropy(p, logits)


def eagle3_loss(
    head: EagleHead, target: Transformer, tokens: Tensor, layers: Tensor, target_logits: Tensor, steps: int = 5, decay: float = 0.8
) -> Tensor:
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
    if head.config.version != 3:
        raise ValueError(f"this is the loss of version 3, got a head of version {head.config.version}")
    p = target_logits.detach().softmax(-1)[..., head.ids]  # (B, T, scored)
    loss = target_logits.new_zeros(())
    for step, (_, logits) in enumerate(rollout(head, target, tokens, head.features(None, layers), steps), 1):
        loss = loss + decay ** (step - 1) * _cross_entropy(p[:, step:], logits)
    return loss


def _cross_entropy(p: Tensor, logits: Tensor) -> Tensor:
    """-Σ p log q, the mean over all positions. (B, T, V) each → ()."""
    return -(p * logits.log_softmax(-1)).sum(-1).mean()


def rollout(head: EagleHead, target: Transformer, tokens: Tensor, features: Tensor, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
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
    T = tokens.shape[1]
    if not 1 <= steps < T:
        raise ValueError(f"steps must lie in [1, {T - 1}] for texts of {T} tokens, got {steps}")
    seen = _Rollout()
    for step in range(1, steps + 1):
        n = T - step
        positions = torch.arange(step - 1, T - 1, device=tokens.device)
        features = head(target, tokens[:, step:], features[:, :n], seen, positions)
        yield features, head.logits(target, features)


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
