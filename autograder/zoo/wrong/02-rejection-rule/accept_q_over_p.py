"""The ratio is upside down.

Caught by: 02.accept_or_reject
Says: q/p instead of p/q
"""

def accept_or_reject(p_prob, q_prob, u):
    return u < q_prob / p_prob if p_prob > 0 else True
