"""The coin's error once more.

Caught by: 03.error_by_rounds
Says: how the rounds scatter is not used
"""

def error_by_rounds(rounds):
    return alpha_from_rounds(rounds)[1]
