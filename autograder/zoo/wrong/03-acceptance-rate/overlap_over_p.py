"""The ratios are weighted with p.

Caught by: 03.acceptance_rate
Says: averaged over p
"""

def acceptance_rate(p, q):
    return sum(a * min(1, a / b) for a, b in zip(p, q) if b)
