"""All drafts accepted, and no token more.

Caught by: 02.exact_law
Says: no bonus token
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
            return emitted + [rng.categorical(residual_dist(p, q))]
    return emitted or [rng.categorical(target(prefix))]
