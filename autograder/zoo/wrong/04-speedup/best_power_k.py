"""The speedup inside the search has α^K for α^(K+1).

Caught by: 04.optimal_k
Says: α^K instead of α^(K+1)
"""

def optimal_k(alpha, c, k_max=64):
    def wrong(k):
        return sum(alpha**i for i in range(k)) / (c * k + 1)

    best = max(range(k_max + 1), key=wrong)
    return best, speedup(alpha, best, c)
