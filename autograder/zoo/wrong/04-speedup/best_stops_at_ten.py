"""Nobody drafts more than ten tokens.

Caught by: 04.optimal_k
Says: the search stops too early
"""

def optimal_k(alpha, c, k_max=64):
    best = max(range(11), key=lambda k: speedup(alpha, k, c))
    return best, speedup(alpha, best, c)
