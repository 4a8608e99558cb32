"""Every round has a rejection.

Caught by: 03.alpha_from_rounds
Says: a full acceptance counts as a rejection too
"""

def alpha_from_rounds(rounds):
    judged = sum(a + 1 for d, a in rounds if d)
    alpha = sum(a for _, a in rounds) / judged
    return alpha, 1.96 * math.sqrt(alpha * (1 - alpha) / judged)
