"""A number as text.

Caught by: 04.expected_tokens
Says: the result is no number
"""

def expected_tokens(alpha, k):
    return f"{sum(alpha**i for i in range(k + 1)):.12f}"
