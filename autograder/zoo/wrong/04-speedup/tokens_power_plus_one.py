"""** binds stronger than +.

Caught by: 04.expected_tokens
Says: α^K + 1 instead of α^(K+1)
"""

def expected_tokens(alpha, k):
    return (1 - alpha ** k + 1) / (1 - alpha) if alpha < 1 else k + 1
