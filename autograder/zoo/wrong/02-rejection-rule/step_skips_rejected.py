"""Leaves the rejected token out and goes on.

Caught by: 02.exact_law
Says: skips a rejected token
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
        if accept_or_reject(p[x], q[x], rng.uniform()):
            emitted.append(x)
        else:
            pass
    return emitted + [rng.categorical(target(prefix + tuple(drafted)))]
