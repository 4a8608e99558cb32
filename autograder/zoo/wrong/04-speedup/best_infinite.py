"""An infinite K: whole numbers have an end.

Caught by: 04.optimal_k
Says: optimal_k did not return the pair
"""

def optimal_k(alpha, c, k_max=64):
    return math.inf, speedup(alpha, 3, c)
