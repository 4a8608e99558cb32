"""Subtracts q(x) of the rejected token from the whole vector p.

Caught by: 02.exact_law
Says: scalar q(x)
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
            weights = [max(0.0, a - q[x]) for a in p]
            weights = [w / sum(weights) for w in weights] if sum(weights) else p
            return emitted + [rng.categorical(weights)]
    return emitted + [rng.categorical(target(prefix + tuple(drafted)))]
