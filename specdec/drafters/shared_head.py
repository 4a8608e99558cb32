"""The part of the target's LM head that a draft of reduced vocabulary scores with: its rows, shared and never stored."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.models.linear import Linear
from specdec.models.transformer import Transformer


def plain_weight(linear: Linear) -> Tensor:
    """(out, in), as float32 out of FBGEMM's layout where it is packed."""
    return torch.ops.quantized.linear_unpack_fp16(linear._packed)[0] if linear.weight is None else linear.weight.detach()


def head_rows(target: Transformer, ids: Tensor | None) -> Tensor:
    """(n, D), the rows of the target's LM head for these ids (n,), or all of them; at least float32."""
    weight = target.embedding.weight.detach() if target.config.tied else plain_weight(target.head)
    rows = weight if ids is None else weight[ids.to(weight.device)]
    return rows.to(torch.promote_types(weight.dtype, torch.float32))


class SharedRows(Linear):
    """logits = x Wᵀ with rows W (n, D) of the target's LM head: no parameter, and no part of a stored file."""

    def __init__(self, rows: int, size: int):
        with torch.device("meta"):
            super().__init__(size, rows)
        del self.weight
        self.register_buffer("weight", torch.empty(rows, size), persistent=False)

    def share(self, target: Transformer, ids: Tensor) -> None:
        """Takes the target's rows for these ids, in the dtype that its activations have."""
        self.weight = head_rows(target, ids).to(target.dtype)


def check_ids(ids: Tensor, n: int, vocab_size: int) -> None:
    """Raises ValueError unless ids are n different ids of the target."""
    if ids.shape != (n,) or ids.min() < 0 or ids.max() >= vocab_size or len(ids.unique()) != n:
        found = f"{ids.tolist()[:8]} … of shape {tuple(ids.shape)}"
        raise ValueError(f"ids must be {n} different numbers in [0, {vocab_size}), got {found}")
