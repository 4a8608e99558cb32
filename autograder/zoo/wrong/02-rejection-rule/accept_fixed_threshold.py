"""A ratio above one half is good enough.

Caught by: 02.accept_or_reject
Says: fixed threshold
"""

def accept_or_reject(p_prob, q_prob, u):
    return q_prob == 0 or p_prob / q_prob > 0.5
