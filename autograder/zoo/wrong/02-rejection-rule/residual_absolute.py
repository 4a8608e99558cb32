"""|p - q|: the negative part is turned over instead of cut off.

Caught by: 02.residual_dist
Says: |p - q| instead of (p - q)₊
"""

def residual_dist(p, q):
    weights = [abs(a - b) for a, b in zip(p, q)]
    total = sum(weights)
    return [w / total for w in weights] if total else list(p)
