"""On rejection the draft's distribution is used again.

Caught by: 02.residual_dist
Says: resamples from q
"""

def residual_dist(p, q):
    return list(q)
