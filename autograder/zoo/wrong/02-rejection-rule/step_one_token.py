"""Lossless but slow: one token a step, straight from the target.

Caught by: 02.exact_law
Says: one token a step
"""

def spec_step(prefix, target, draft, k, rng):
    return [rng.categorical(target(prefix))]
