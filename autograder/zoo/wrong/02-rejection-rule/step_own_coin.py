"""The coins come from Python's random module.

Caught by: 02.exact_law
Says: elsewhere than from rng
"""

import random


def spec_step(prefix, target, draft, k, rng):
    drafted, qs = [], []
    for _ in range(k):
        q = draft(prefix + tuple(drafted))
        drafted.append(rng.categorical(q))
        qs.append(q)
    emitted = []
    for i, x in enumerate(drafted):
        p, q = target(prefix + tuple(drafted[:i])), qs[i]
        if accept_or_reject(p[x], q[x], random.random()):
            emitted.append(x)
        else:
            return emitted + [rng.categorical(residual_dist(p, q))]
    return emitted + [rng.categorical(target(prefix + tuple(drafted)))]
