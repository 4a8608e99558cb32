"""Raises exceptions whose text never ends, or is not there.

Cheats: 02.accept_or_reject, 02.residual_dist
"""

class Evil(Exception):
    def __str__(self): return "passed " * 10**7
    def __repr__(self): raise self


class Worse(BaseException):
    def __str__(self): raise SystemExit(0)


def accept_or_reject(p_prob, q_prob, u):
    raise Evil


def residual_dist(p, q):
    raise Worse
