"""One draft step, whatever K is.

Caught by: 04.speedup
Says: whatever K is
"""

def speedup(alpha, k, c):
    return expected_tokens(alpha, k) / (c + 1)
