"""Absolute surpluses.

Caught by: 03.error_by_rounds
Says: the squares are missing
"""

def error_by_rounds(rounds):
    alpha, _ = alpha_from_rounds(rounds)
    counts = [(min(a + 1, d), a) for d, a in rounds]
    return 1.96 * sum(abs(a - alpha * n) for n, a in counts) / sum(n for n, _ in counts)
