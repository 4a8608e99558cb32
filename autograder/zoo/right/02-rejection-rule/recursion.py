"""Recursion over k; the coin is read from the other end, which has the same law."""

def accept_or_reject(p_prob, q_prob, u):
    return q_prob == 0 or u < min(1, p_prob / q_prob)


def residual_dist(p, q):
    rest = list(map(lambda a, b: max(a - b, 0), p, q))
    return [r / sum(rest) for r in rest] if any(rest) else p


def spec_step(prefix, target, draft, k, rng):
    p = target(prefix)
    if k == 0:
        return [rng.categorical(p)]
    q = draft(prefix)
    x = rng.categorical(q)
    if not accept_or_reject(p[x], q[x], 1 - rng.uniform()):
        return [rng.categorical(residual_dist(p, q))]
    return [x, *spec_step((*prefix, x), target, draft, k - 1, rng)]
