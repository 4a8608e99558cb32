"""range(k_max) ends before k_max.

Caught by: 04.optimal_k
Says: k_max itself is never tried
"""

def optimal_k(alpha, c, k_max=64):
    best = max(range(max(1, k_max)), key=lambda k: speedup(alpha, k, c))
    return best, speedup(alpha, best, c)
