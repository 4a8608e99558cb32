"""Accepts where the target likes the token at least as much, and never else.

Caught by: 02.accept_or_reject
Says: accepts if and only if p >= q
"""

def accept_or_reject(p_prob, q_prob, u):
    return p_prob >= q_prob
