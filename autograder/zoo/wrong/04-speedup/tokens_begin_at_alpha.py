"""The range is shifted by one.

Caught by: 04.expected_tokens
Says: the sum begins at α
"""

def expected_tokens(alpha, k):
    return sum(alpha**i for i in range(1, k + 2))
