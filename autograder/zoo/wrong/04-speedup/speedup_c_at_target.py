"""c is taken for the target's cost.

Caught by: 04.speedup
Says: c stands at the target
"""

def speedup(alpha, k, c):
    return expected_tokens(alpha, k) / (k + c) if k + c else 1.0
