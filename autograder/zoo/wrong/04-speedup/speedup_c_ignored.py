"""A draft that costs nothing.

Caught by: 04.speedup
Says: c is ignored
"""

def speedup(alpha, k, c):
    return expected_tokens(alpha, k)
