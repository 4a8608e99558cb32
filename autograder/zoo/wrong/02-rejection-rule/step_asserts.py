"""An assert of the student's that does not hold.

Caught by: 02.exact_law
Says: your code raised AssertionError
"""

def spec_step(prefix, target, draft, k, rng):
    p, q = target(prefix), draft(prefix)
    assert len(p) == len(prefix), "one probability for each token"
    return [rng.categorical(p)]
