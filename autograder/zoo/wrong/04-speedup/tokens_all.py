"""As if every draft were accepted.

Caught by: 04.expected_tokens
Says: always K + 1
"""

def expected_tokens(alpha, k):
    return k + 1
