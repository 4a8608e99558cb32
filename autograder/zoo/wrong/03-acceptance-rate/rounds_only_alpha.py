"""No error beside α.

Caught by: 03.alpha_from_rounds
Says: did not return the pair
"""

def alpha_from_rounds(rounds):
    return sum(a for _, a in rounds) / sum(min(a + 1, d) for d, a in rounds)
