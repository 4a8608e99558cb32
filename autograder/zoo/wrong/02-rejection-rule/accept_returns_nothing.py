"""Forgets to return the decision.

Caught by: 02.accept_or_reject
Says: must return True or False
"""

def accept_or_reject(p_prob, q_prob, u):
    u < p_prob
