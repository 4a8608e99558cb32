"""Token i is judged by the row that has seen it already.

Caught by: 02.exact_law
Says: the target's row is off by one
"""

def spec_step(prefix, target, draft, k, rng):
    drafted, qs = [], []
    for _ in range(k):
        q = draft(prefix + tuple(drafted))
        drafted.append(rng.categorical(q))
        qs.append(q)
    emitted = []
    for i, x in enumerate(drafted):
        p, q = target(prefix + tuple(drafted[: i + 1])), qs[i]
        if accept_or_reject(p[x], q[x], rng.uniform()):
            emitted.append(x)
        else:
            return emitted + [rng.categorical(residual_dist(p, q))]
    return emitted + [rng.categorical(target(prefix + tuple(drafted)))]
