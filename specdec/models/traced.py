"""Layers without Python between their operations.

A layer is two dozen operations, most of which take a few microseconds where a single token passes: less than Python takes to ask for
them, which is a third to a half of a plain decoding step of SmolLM2 on two cores. PyTorch's tracer writes the operations of all
layers down once, and TorchScript's interpreter runs the same ones from then on: the numbers are the same to the last bit.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from specdec.device import on_host
from specdec.models.attention import CacheView, Fixed, Prompt, View


class Traces:
    """The traces of one module, one for each kind of view. A copy of the module begins with none.

    A trace keeps the parameters that the module had when it was made. Load, pack and move a module first.
    """

    def __init__(self) -> None:
        self._made: dict[tuple, torch.jit.ScriptModule] = {}

    def __deepcopy__(self, _) -> Traces:
        return Traces()

    def __reduce__(self) -> tuple:
        return Traces, ()

    @staticmethod
    def pay(inputs: Tensor, seen: View) -> bool:
        """Whether to use them: where the CPU computes and no gradient is wanted. A prompt comes once and is long; a fixed shape is
        computed with sizes by name, which a trace would keep for every other shape."""
        usable = isinstance(seen, CacheView) and not isinstance(seen, Prompt | Fixed)
        return usable and on_host(inputs.device) and not torch.is_grad_enabled()

    def run(self, module: nn.Module, inputs: tuple[Tensor, ...], seen: CacheView, *static) -> list[Tensor]:
        """module.through(*inputs, seen, *static), a list of tensors.

        What a trace is written down from holds for inputs of every shape, as long as `through` does no arithmetic with sizes. Where it
        depends on more, that must be in `static`, which is hashable.
        """
        tensors, key = (*inputs, *seen.tensors), (type(seen), static)
        if key not in self._made:
            with warnings.catch_warnings():
                # That sizes are used in Python, and that tracing is to make way for compilers; these are slower here.
                warnings.simplefilter("ignore")
                steps = _Steps(module, len(inputs), type(seen), static)
                self._made[key] = torch.jit.trace(steps, tensors, check_trace=False)
        with torch.jit.optimized_execution(False):  # the same operations, in the same order
            return self._made[key](*tensors)


class _Steps(nn.Module):
    """What is traced: tensors alone go in and out."""

    def __init__(self, module: nn.Module, inputs: int, kind: type[CacheView], static: tuple):
        super().__init__()
        self.module, self.inputs, self.kind, self.static = module, inputs, kind, static

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        return self.module.through(*tensors[: self.inputs], self.kind(*tensors[self.inputs :]), *self.static)
