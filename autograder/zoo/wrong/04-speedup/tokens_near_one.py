"""An α near 1 is taken for 1.

Caught by: 04.expected_tokens
Says: is treated as 1
"""

def expected_tokens(alpha, k):
    return k + 1 if alpha > 0.99 else (1 - alpha ** (k + 1)) / (1 - alpha)
