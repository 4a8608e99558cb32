"""Knows the checks' first tables by heart, and asks neither model.

Cheats: 02.spec_step, 02.exact_law, 02.equivalence
"""

def spec_step(prefix, target, draft, k, rng):
    return [rng.categorical([0.5, 0.25, 0.25])]
