"""The chance that two draws agree.

Caught by: 03.acceptance_rate
Says: two independent draws agree
"""

def acceptance_rate(p, q):
    return float(np.dot(p, q))
