"""The target pays for each position that it scores.

Caught by: 04.speedup
Says: each of its K + 1 positions
"""

def speedup(alpha, k, c):
    return expected_tokens(alpha, k) / (c * k + k + 1)
