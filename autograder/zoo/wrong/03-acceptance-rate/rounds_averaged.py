"""Rates of rounds are averaged.

Caught by: 03.alpha_from_rounds
Says: the rates of the rounds are averaged
"""

def alpha_from_rounds(rounds):
    rates = [a / min(a + 1, d) for d, a in rounds if d]
    return np.mean(rates), 1.96 * np.std(rates) / math.sqrt(len(rates))
