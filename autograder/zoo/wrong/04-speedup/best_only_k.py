"""Returns K alone.

Caught by: 04.optimal_k
Says: did not return the pair
"""

def optimal_k(alpha, c, k_max=64):
    return max(range(k_max + 1), key=lambda k: speedup(alpha, k, c))
