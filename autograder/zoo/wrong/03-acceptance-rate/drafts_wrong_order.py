"""The better KL comes second.

Caught by: 03.better_kl_worse_alpha
Says: stand in the wrong order
"""

def better_kl_worse_alpha(p):
    rare = p.index(min(p))
    fine = [1e-9 if x == rare else y for x, y in enumerate(p)]
    share = 2 * min(p) + 0.02
    return [y / sum(fine) for y in fine], [(1 - share) * y + share * (x == rare) for x, y in enumerate(p)]
