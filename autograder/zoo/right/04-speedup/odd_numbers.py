"""Exact fractions, decimals, a named tuple, and whole numbers that are none of Python's own."""

from collections import namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy as np

Best = namedtuple("Best", "k speedup")


def expected_tokens(alpha, k):
    return Decimal(1) * (k + 1) if alpha == 1 else sum(Fraction(alpha) ** i for i in range(k + 1))


def speedup(alpha, k, c):
    return np.longdouble(float(expected_tokens(alpha, k))) / (1 + c * k)


def optimal_k(alpha, c, k_max=64):
    speeds = np.array([float(speedup(alpha, k, c)) for k in range(k_max + 1)])
    return Best(speeds.argmax(), np.array(speeds.max()))
