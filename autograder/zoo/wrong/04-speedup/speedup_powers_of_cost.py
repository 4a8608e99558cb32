"""Costs are multiplied.

Caught by: 04.speedup
Says: (1 + c)^K
"""

def speedup(alpha, k, c):
    return expected_tokens(alpha, k) / (1 + c) ** k
