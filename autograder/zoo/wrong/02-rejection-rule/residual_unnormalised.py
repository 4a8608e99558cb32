"""Never divides by the sum.

Caught by: 02.residual_dist
Says: not normalised
"""

def residual_dist(p, q):
    return [max(0.0, a - b) for a, b in zip(p, q)]
