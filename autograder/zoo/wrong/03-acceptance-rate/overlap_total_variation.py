"""1 - α is returned.

Caught by: 03.acceptance_rate
Says: the total variation, not the acceptance rate
"""

def acceptance_rate(p, q):
    return sum(abs(a - b) for a, b in zip(p, q)) / 2
