"""^ for a power.

Caught by: 04.expected_tokens
Says: ^ is no power in Python
"""

def expected_tokens(alpha, k):
    return (1 - alpha ^ (k + 1)) / (1 - alpha) if alpha < 1 else k + 1
