"""The draft's probability is forgotten.

Caught by: 02.accept_or_reject
Says: accepts with probability p
"""

def accept_or_reject(p_prob, q_prob, u):
    return u < p_prob
