"""Multiplies by the cost.

Caught by: 04.speedup
Says: multiplied by the cost
"""

def speedup(alpha, k, c):
    return expected_tokens(alpha, k) * (c * k + 1)
