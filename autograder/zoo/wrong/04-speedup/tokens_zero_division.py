"""The closed form, and no thought for α = 1.

Caught by: 04.expected_tokens
Says: α = 1 divides by zero
"""

def expected_tokens(alpha, k):
    return (1 - alpha ** (k + 1)) / (1 - alpha)
