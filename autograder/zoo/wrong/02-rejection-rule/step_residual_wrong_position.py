"""The residual is taken one position too late.

Caught by: 02.exact_law
Says: the residual is taken at the wrong position
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
            after = prefix + tuple(drafted[: i + 1])
            q = qs[min(i + 1, k - 1)] if i + 1 < k else draft(after)
            return emitted + [rng.categorical(residual_dist(target(after), q))]
    return emitted + [rng.categorical(target(prefix + tuple(drafted)))]
