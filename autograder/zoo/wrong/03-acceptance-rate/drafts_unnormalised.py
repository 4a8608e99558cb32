"""The mass that was taken away is missing.

Caught by: 03.better_kl_worse_alpha
Says: the second draft sums to
"""

def better_kl_worse_alpha(p):
    rare = p.index(min(p))
    share = 2 * min(p) + 0.02
    return [(1 - share) * y + share * (x == rare) for x, y in enumerate(p)], [1e-9 if x == rare else y for x, y in enumerate(p)]
