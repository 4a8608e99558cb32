"""The limit for endless drafts.

Caught by: 04.expected_tokens
Says: K is ignored
"""

def expected_tokens(alpha, k):
    return 1 / (1 - alpha) if alpha < 1 else k + 1
