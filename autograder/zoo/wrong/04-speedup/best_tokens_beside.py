"""The number beside K is τ, not the speedup.

Caught by: 04.optimal_k
Says: the speedup beside K is wrong
"""

def optimal_k(alpha, c, k_max=64):
    best = max(range(k_max + 1), key=lambda k: speedup(alpha, k, c))
    return best, expected_tokens(alpha, best)
