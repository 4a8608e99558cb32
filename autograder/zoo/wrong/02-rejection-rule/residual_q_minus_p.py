"""(q - p)₊: the roles of target and draft are exchanged.

Caught by: 02.residual_dist
Says: (q - p)₊ instead of (p - q)₊
"""

def residual_dist(p, q):
    weights = [max(0.0, b - a) for a, b in zip(p, q)]
    total = sum(weights)
    return [w / total for w in weights] if total else list(p)
