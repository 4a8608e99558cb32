"""Samples from the target, and accepts if that is the drafted token.

Caught by: 02.exact_law
Says: target's own sample equals the draft
"""

def spec_step(prefix, target, draft, k, rng):
    drafted, qs = [], []
    for _ in range(k):
        q = draft(prefix + tuple(drafted))
        drafted.append(rng.categorical(q))
        qs.append(q)
    emitted = []
    for i, x in enumerate(drafted):
        p, q = target(prefix + tuple(drafted[:i])), qs[i]
        own = rng.categorical(p)
        if own == x:
            emitted.append(x)
        else:
            return emitted + [own]
    return emitted + [rng.categorical(target(prefix + tuple(drafted)))]
