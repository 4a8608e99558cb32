"""Only the accepted drafts are counted.

Caught by: 04.expected_tokens
Says: the token that every step emits is left out
"""

def expected_tokens(alpha, k):
    return sum(alpha**i for i in range(1, k + 1))
