"""Prints without end, to Python's streams and to the file descriptors.

Cheats: 02.accept_or_reject
"""

import os


def accept_or_reject(p_prob, q_prob, u):
    for _ in range(3000):
        print("x" * 10**5)
        for fd in (1, 2):
            os.write(fd, b"x" * 10**5)
    return True
