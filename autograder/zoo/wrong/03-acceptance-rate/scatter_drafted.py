"""Surplus over the drafted tokens.

Caught by: 03.error_by_rounds
Says: taken over the drafted tokens
"""

def error_by_rounds(rounds):
    alpha, _ = alpha_from_rounds(rounds)
    return 1.96 * math.sqrt(sum((a - alpha * d) ** 2 for d, a in rounds)) / sum(min(a + 1, d) for d, a in rounds)
