"""RMSNorm in fewer passes than PyTorch makes of it on a CPU, where one token's norms cost more than its attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from specdec.device import on_host


class RMSNorm(nn.RMSNorm):
    """x / √(mean(x²) + eps) · weight over the last axis (Zhang & Sennrich 1910.07467, section 4).

    mean(x²) + eps = (‖x‖² + D eps) / D, and the root of that sum is the hypotenuse over ‖x‖ and √(D eps).
    """

    def __init__(self, size: int, eps: float):
        super().__init__(size, eps)
        self.root = math.sqrt(size)
        numbers = 0.0, math.sqrt(size * eps)  # PyTorch wants them as tensors
        self.numbers = {dtype: torch.tensor(numbers, dtype=dtype, device="cpu").unbind() for dtype in (torch.float32, torch.float64)}

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) → (..., D). Half precision and accelerators take PyTorch's own way, which widens the sum."""
        if x.dtype not in self.numbers or not on_host(x.device):
            return super().forward(x)
        zero, shortest = self.numbers[x.dtype]
        length = torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), shortest)
        return torch.addcdiv(zero, x, length, value=self.root) * self.weight
