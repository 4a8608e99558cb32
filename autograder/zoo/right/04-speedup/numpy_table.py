"""The whole table at once, in numpy, with a warning and a print."""

import warnings

import numpy as np


def expected_tokens(alpha, k):
    return np.power(float(alpha), np.arange(k + 1)).sum()


def speedup(alpha, k, c):
    return expected_tokens(alpha, k) / np.float64(c * k + 1)


def optimal_k(alpha, c, k_max=64):
    if c >= alpha:
        warnings.warn("the draft is too dear")
    speeds = np.array([speedup(alpha, k, c) for k in range(k_max + 1)])
    print("best of", len(speeds))
    return int(speeds.argmax()), speeds.max()
