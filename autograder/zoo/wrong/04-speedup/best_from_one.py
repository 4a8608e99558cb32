"""K = 0 is not among the candidates.

Caught by: 04.optimal_k
Says: K = 0, do not speculate, is left out
"""

def optimal_k(alpha, c, k_max=64):
    best = max(range(1, k_max + 1), key=lambda k: speedup(alpha, k, c))
    return best, speedup(alpha, best, c)
