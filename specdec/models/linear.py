"""A linear layer that picks the kernel which reads 16-bit weights once for all rows.

Speculation lives on one fact: scoring eight tokens costs little more than scoring one, because the weights are read once. On a
CPU without AVX-512 PyTorch has no bfloat16 matrix kernel and multiplies row by row, so eight rows cost seven times as much as
one. There the layers hand their weights to FBGEMM's half-precision kernel: 16-bit weights, float32 activations and sums. A
bfloat16 weight fits into float16 without loss but for values below 6e-5, which lose their last bits.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def needs_packing(device: torch.device | str, dtype: torch.dtype) -> bool:
    """Whether this machine multiplies 16-bit matrices row by row and FBGEMM can do better."""
    return (
        torch.device(device).type == "cpu"
        and dtype == torch.bfloat16
        and torch.backends.cpu.get_cpu_capability() == "AVX2"
        and "fbgemm" in torch.backends.quantized.supported_engines
    )


class Linear(nn.Module):
    """y = x Wᵀ (+ b). weight (out, in), bias (out,) or None. `pack` switches to the packed kernel."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self._packed = None

    def pack(self) -> None:
        """Moves the weight into FBGEMM's layout, from where x must be float32; a plain copy that nobody shares is freed."""
        bias = None if self.bias is None else self.bias.detach().float()
        self._packed = torch.ops.quantized.linear_prepack_fp16(self.weight.detach().float(), bias)
        self.weight = None

    def forward(self, x: Tensor) -> Tensor:
        if self._packed is None:
            return F.linear(x, self.weight, self.bias)
        if x.dim() == 1:  # which the kernel does not take
            return self(x.unsqueeze(0)).squeeze(0)
        return torch.ops.quantized.linear_dynamic_fp16(x, self._packed)


def pack_linears(model: nn.Module) -> None:
    """Packs every Linear of the model, and lets its norms pass on float32; see the module's docstring."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.pack()
        elif isinstance(module, nn.RMSNorm):
            module.float()
