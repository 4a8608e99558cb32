"""Wants the judge to hold, print and keep ten million numbers, a frame of nothing but lists, and a message of a million lines.

Cheats: 04.expected_tokens, 04.speedup, 04.optimal_k
"""

import os


def expected_tokens(alpha, k):
    return [0.5] * 10**7


def speedup(alpha, k, c):
    text = b'{"dict":[["done",[' + b"[]," * (2 * 2**20) + b"[]]]]}"
    data = len(text).to_bytes(4, "little") + (0).to_bytes(4, "little") + text
    while data:
        data = data[os.write(3, data) :]


def optimal_k(alpha, c, k_max=64):
    print("line\n" * 10**6)
    raise ValueError("m\n" * 10**6)
