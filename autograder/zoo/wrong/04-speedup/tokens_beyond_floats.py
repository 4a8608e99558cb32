"""A whole number beyond every float.

Caught by: 04.expected_tokens
Says: the result is no number
"""

def expected_tokens(alpha, k):
    return 10**400
