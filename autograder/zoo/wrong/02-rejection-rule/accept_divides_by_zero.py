"""Right, but for q(x) = 0.

Caught by: 02.accept_or_reject
Says: q(x) = 0 breaks the division
"""

def accept_or_reject(p_prob, q_prob, u):
    return u < p_prob / q_prob
