"""Drafts at half the temperature that q is declared with.

Caught by: 02.exact_law
Says: the draft's temperature differs
"""

def spec_step(prefix, target, draft, k, rng):
    drafted, qs = [], []
    for _ in range(k):
        q = draft(prefix + tuple(drafted))
        sharp = [a * a for a in q]
        drafted.append(rng.categorical([a / sum(sharp) for a in sharp]))
        qs.append(q)
    emitted = []
    for i, x in enumerate(drafted):
        p, q = target(prefix + tuple(drafted[:i])), qs[i]
        if accept_or_reject(p[x], q[x], rng.uniform()):
            emitted.append(x)
        else:
            return emitted + [rng.categorical(residual_dist(p, q))]
    return emitted + [rng.categorical(target(prefix + tuple(drafted)))]
