"""Small numbers on their way from the host to the device of a model."""

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
