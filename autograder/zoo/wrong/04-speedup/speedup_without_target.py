"""The target's own forward is free.

Caught by: 04.speedup
Says: the target's forward is left out
"""

def speedup(alpha, k, c):
    return expected_tokens(alpha, k) / (c * k) if c * k else 1.0
