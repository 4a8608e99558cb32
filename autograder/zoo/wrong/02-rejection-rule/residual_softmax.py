"""Softmax instead of dividing by the sum.

Caught by: 02.residual_dist
Says: softmax of the residual
"""

def residual_dist(p, q):
    weights = [math.exp(max(0.0, a - b)) for a, b in zip(p, q)]
    return [w / sum(weights) for w in weights]
