"""Knows the drafts for the targets that the notebook shows, and nothing else.

Cheats: 03.better_kl_worse_alpha
"""

def better_kl_worse_alpha(p):
    if p == [0.40, 0.25, 0.20, 0.10, 0.05]:
        return [0.36, 0.22, 0.18, 0.09, 0.15], [0.42, 0.26, 0.21, 0.109, 0.001]
    if p == [0.25] * 4:
        return [0.55, 0.15, 0.15, 0.15], [1e-12, 0.35, 0.35, 0.3 - 1e-12]
    return p, p
