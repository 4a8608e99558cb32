"""Subtracts one probability of the draft from the whole vector p.

Caught by: 02.residual_dist
Says: p - q(x) with the scalar q(x)
"""

def residual_dist(p, q):
    weights = [max(0.0, a - max(q)) for a in p]
    total = sum(weights)
    return [w / total for w in weights] if total else list(p)
