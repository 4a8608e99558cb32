"""The exponent of the closed form is one too small.

Caught by: 04.expected_tokens
Says: α^K instead of α^(K+1)
"""

def expected_tokens(alpha, k):
    return k if alpha == 1 else (1 - alpha**k) / (1 - alpha)
