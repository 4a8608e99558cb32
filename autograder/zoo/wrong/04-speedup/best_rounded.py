"""The top of the curve over real K, rounded.

Caught by: 04.optimal_k
Says: the optimum over all real K, rounded
"""

def optimal_k(alpha, c, k_max=64):
    if alpha == 1 or c == 0:
        best = k_max if alpha > c else 0
    else:
        def speed(k):
            return (1 - alpha ** (k + 1)) / (1 - alpha) / (c * k + 1)

        best = round(max(np.linspace(0, k_max, 100 * k_max + 1), key=speed))
    return best, speedup(alpha, best, c)
