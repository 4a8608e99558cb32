"""Subtracts where it should divide.

Caught by: 02.accept_or_reject
Says: accepts with probability p - q
"""

def accept_or_reject(p_prob, q_prob, u):
    return u < p_prob - q_prob
