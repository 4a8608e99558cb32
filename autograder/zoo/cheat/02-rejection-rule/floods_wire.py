"""Fills the connection to the judge with bytes.

Cheats: 02.accept_or_reject, 02.residual_dist
"""

import os


def accept_or_reject(p_prob, q_prob, u):
    while True:
        os.write(3, b"\xff" * 2**20)


def residual_dist(p, q):
    os.write(3, (2**31).to_bytes(4, "little") * 2)
    return [0.5] * len(p)
