"""TV lacks its half.

Caught by: 03.acceptance_rate
Says: TV without its half
"""

def acceptance_rate(p, q):
    return 1 - sum(abs(a - b) for a, b in zip(p, q))
