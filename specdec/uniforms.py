"""Where randomness comes from: a counter-based stream, so that no draw depends on how many were made before it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from specdec.config import check_whole


class Purpose(IntEnum):
    """What a uniform decides. One stream each, so that drafting more or fewer tokens moves no other draw."""

    DRAFT = 0  # which token the drafter proposes
    VERIFY = 1  # the coins of the acceptance rule
    NEXT = 2  # the recovered, bonus or plain next token


class Uniforms:
    """Uniforms in [0, 1) keyed by (seed, request, position, purpose), from Philox (Salmon et al. 2011).

    `position` is the number of committed tokens when the round begins. Every round commits at least one token, so no key is used
    twice: a rule may let late coins decide about early tokens (block verification does) without tying one round to the next. And
    a round without draft uses the same NEXT uniform as plain decoding at that position.

    Args:
        seed: 64 bits.
        request: tells the rows of a batch apart, so that a row's output does not depend on its neighbours.

    Raises:
        ValueError: if one of them is no whole number.
    """

    def __init__(self, seed: int, request: int = 0):
        check_whole("seed", seed)
        check_whole("request", request)
        self.seed, self.request = int(seed), int(request)
        self._bits = np.random.Philox(key=np.array([self.seed % 2**64, self.request % 2**64], dtype=np.uint64))
        self._random, self._fresh = np.random.Generator(self._bits), self._bits.state

    def draw(self, purpose: Purpose, position: int, n: int) -> Tensor:
        """(n,) float64 on the CPU, the same whenever it is asked for; a shorter draw is a prefix of a longer one."""
        # Philox counts in the low word; position and purpose sit above anything that it can count to.
        self._fresh["state"]["counter"][:] = 0, 0, position, purpose
        self._bits.state = self._fresh
        return torch.from_numpy(self._random.random(n))
