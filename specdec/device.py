"""Between the host and the device of a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FLOATING = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def usable(device: torch.device | str) -> torch.device:
    """The device, which computes. Raises ValueError if PyTorch does not know it, or cannot use it on this machine."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device {str(device)!r} is unknown; use cpu, or cuda where there is an NVIDIA GPU") from error
    try:
        torch.empty(1, device=found)
    except Exception as error:  # of a kind that depends on the device
        reason = str(error).partition("\n")[0].strip() or type(error).__name__
        raise ValueError(f"device {str(device)!r} cannot be used here: {reason}") from error
    return found


def upload(values: Sequence | Tensor, device: torch.device | str) -> Tensor:
    """`values` as a tensor on the device. To a GPU the copy goes through pinned memory and nobody waits for it."""
    tensor = torch.as_tensor(values)
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def on_host(device: torch.device) -> bool:
    """Whether values may be read without waiting for a device. Then work that would change nothing can be left out."""
    return device.type == "cpu"


def floating_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """The dtype, which may be given by its name ("float32", "torch.float32"). Raises ValueError if it is none of real numbers."""
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or found not in FLOATING:
        raise ValueError(f"dtype must be one of {', '.join(str(one) for one in FLOATING)} or its name, got {dtype!r}")
    return found
