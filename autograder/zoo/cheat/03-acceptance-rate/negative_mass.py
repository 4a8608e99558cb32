"""Drafts that sum to 1 with the help of negative entries, so that any KL and any α can be had.

Cheats: 03.better_kl_worse_alpha
"""

def better_kl_worse_alpha(p):
    first, second = list(p), list(p)
    first[0], first[1] = first[0] + 5, first[1] - 5
    second[0], second[1] = 1e-12, second[0] + second[1] - 1e-12
    return first, second
