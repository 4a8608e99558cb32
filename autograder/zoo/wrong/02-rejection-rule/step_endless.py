"""Waits for a token that never comes.

Caught by: 02.spec_step
Says: not finished after
"""

def spec_step(prefix, target, draft, k, rng):
    while True:
        pass
