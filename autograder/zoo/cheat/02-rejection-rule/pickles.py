"""Answers with objects that run code where they are unpickled, copied, printed or hashed.

Cheats: 02.accept_or_reject, 02.residual_dist
"""

import os


class Bomb:
    def __reduce__(self): return (os.system, ("touch /tmp/cheat-was-here",))
    def __deepcopy__(self, memo): return os.system("touch /tmp/cheat-was-here")
    def __repr__(self): return os._exit(0)
    def __str__(self): return os._exit(0)
    def __format__(self, spec): return os._exit(0)


def accept_or_reject(p_prob, q_prob, u):
    return Bomb()


def residual_dist(p, q):
    return [Bomb() for _ in p]
