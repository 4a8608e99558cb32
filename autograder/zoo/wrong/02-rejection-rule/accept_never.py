"""Trusts nobody.

Caught by: 02.accept_or_reject
Says: never accepts
"""

def accept_or_reject(p_prob, q_prob, u):
    return False
