"""The token is left out altogether.

Caught by: 03.better_kl_worse_alpha
Says: its KL is infinite
"""

def better_kl_worse_alpha(p):
    rare = p.index(min(p))
    fine = [0.0 if x == rare else y for x, y in enumerate(p)]
    share = 2 * min(p) + 0.02
    return [(1 - share) * y + share * (x == rare) for x, y in enumerate(p)], [y / sum(fine) for y in fine]
