"""N counts the rounds.

Caught by: 03.alpha_from_rounds
Says: divided by the number of rounds
"""

def alpha_from_rounds(rounds):
    alpha = sum(a for _, a in rounds) / sum(min(a + 1, d) for d, a in rounds)
    return alpha, 1.96 * math.sqrt(alpha * (1 - alpha) / len(rounds))
