"""The comparison with u is turned round.

Caught by: 02.accept_or_reject
Says: accepts when u is above p/q
"""

def accept_or_reject(p_prob, q_prob, u):
    return u > p_prob / q_prob if q_prob > 0 else False
