"""Waits for the grader to lose patience.

Cheats: 02.residual_dist
"""

import time


def residual_dist(p, q):
    time.sleep(10**6)
