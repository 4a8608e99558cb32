"""An index that is out of range.

Caught by: 02.spec_step
Says: your code raised IndexError
"""

def spec_step(prefix, target, draft, k, rng):
    tokens = []
    return tokens[k]
