"""The closed form in numpy: NaN at α = 1.

Caught by: 04.expected_tokens
Says: α = 1 gives NaN
"""

def expected_tokens(alpha, k):
    alpha = np.float64(alpha)
    with np.errstate(all="ignore"):
        return (1 - alpha ** (k + 1)) / (1 - alpha)
