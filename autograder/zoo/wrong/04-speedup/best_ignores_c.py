"""Maximises the tokens, not the speed.

Caught by: 04.optimal_k
Says: c is ignored
"""

def optimal_k(alpha, c, k_max=64):
    best = max(range(k_max + 1), key=lambda k: expected_tokens(alpha, k)) if alpha < 1 else k_max
    return k_max if alpha > 0 else 0, speedup(alpha, best, c)
