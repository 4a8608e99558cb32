"""K + 1 draft steps.

Caught by: 04.speedup
Says: c(K + 1) + 1
"""

def speedup(alpha, k, c):
    return expected_tokens(alpha, k) / (c * (k + 1) + 1)
