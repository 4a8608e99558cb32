"""Puts all mass on the largest entry.

Caught by: 02.residual_dist
Says: argmax of the residual
"""

def residual_dist(p, q):
    weights = [max(0.0, a - b) for a, b in zip(p, q)]
    best = weights.index(max(weights))
    return [1.0 if i == best else 0.0 for i in range(len(p))]
