"""Trusts the draft.

Caught by: 02.accept_or_reject
Says: always accepts
"""

def accept_or_reject(p_prob, q_prob, u):
    return True
