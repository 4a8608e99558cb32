"""A fair coin, whatever p and q are.

Caught by: 02.accept_or_reject
Says: accepts u below a fixed 0.5
"""

def accept_or_reject(p_prob, q_prob, u):
    return u < 0.5
