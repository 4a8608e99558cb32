"""Numerator and denominator exchanged.

Caught by: 04.expected_tokens
Says: upside down
"""

def expected_tokens(alpha, k):
    return (1 - alpha) / (1 - alpha ** (k + 1)) if alpha < 1 else k + 1
