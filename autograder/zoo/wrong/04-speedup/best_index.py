"""The index in a list that begins at K = 1.

Caught by: 04.optimal_k
Says: index off by one
"""

def optimal_k(alpha, c, k_max=64):
    speeds = [speedup(alpha, k, c) for k in range(1, k_max + 1)]
    best = speeds.index(max(speeds)) if speeds else 0
    return best, speedup(alpha, best, c)
