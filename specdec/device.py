"""Between the host and the device of a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(values: Sequence | Tensor, device: torch.device | str) -> Tensor:
    """`values` as a tensor on the device. To a GPU the copy goes through pinned memory and nobody waits for it."""
    tensor = torch.as_tensor(values)
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def on_host(device: torch.device) -> bool:
    """Whether values may be read without waiting for a device. Then work that would change nothing can be left out."""
    return device.type == "cpu"
