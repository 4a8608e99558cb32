"""As if every draft were accepted independently of those before it.

Caught by: 04.expected_tokens
Says: αK + 1
"""

def expected_tokens(alpha, k):
    return alpha * k + 1
