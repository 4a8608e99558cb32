"""What programs report.

Caught by: 03.alpha_from_rounds
Says: accepted over drafted: tokens after a rejection
"""

def alpha_from_rounds(rounds):
    alpha, drafted = sum(a for _, a in rounds) / sum(d for d, _ in rounds), sum(d for d, _ in rounds)
    return alpha, 1.96 * math.sqrt(alpha * (1 - alpha) / drafted)
