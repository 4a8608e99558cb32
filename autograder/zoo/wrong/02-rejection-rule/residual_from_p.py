"""On rejection the target's own distribution is used.

Caught by: 02.residual_dist
Says: resamples from p
"""

def residual_dist(p, q):
    return list(p)
