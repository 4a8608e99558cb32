"""Divides 0 by 0 where nothing is left.

Caught by: 02.residual_dist
Says: a residual without mass
"""

def residual_dist(p, q):
    weights = np.maximum(np.array(p) - np.array(q), 0)
    return weights / weights.sum()
