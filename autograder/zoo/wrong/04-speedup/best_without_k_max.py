"""k_max is not looked at.

Caught by: 04.optimal_k
Says: k_max is ignored
"""

def optimal_k(alpha, c, k_max=64):
    best = max(range(65), key=lambda k: speedup(alpha, k, c))
    return best, speedup(alpha, best, c)
