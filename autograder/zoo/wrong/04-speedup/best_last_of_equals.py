"""The largest K among equals.

Caught by: 04.optimal_k
Says: not the smallest of several equally fast K
"""

def optimal_k(alpha, c, k_max=64):
    best, fastest = 0, 0.0
    for k in range(k_max + 1):
        if speedup(alpha, k, c) >= fastest:
            best, fastest = k, speedup(alpha, k, c)
    return best, fastest
