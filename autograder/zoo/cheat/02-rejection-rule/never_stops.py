"""Loops for ever, deaf to signals and exceptions.

Cheats: 02.residual_dist
"""

import signal

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass


def residual_dist(p, q):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
