"""q = 0 divides by zero.

Caught by: 03.acceptance_rate
Says: an entry of 0 divides by zero
"""

def acceptance_rate(p, q):
    return sum(b * min(1, a / b) for a, b in zip(p, q))
