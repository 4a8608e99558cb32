"""The cost is right, the tokens are not.

Caught by: 04.speedup
Says: α^K instead of α^(K+1)
"""

def speedup(alpha, k, c):
    return sum(alpha**i for i in range(k)) / (c * k + 1) if k else 1.0
