"""Never calls rng.categorical: tokens are drawn from uniform numbers by the inverse of the distribution function."""

def accept_or_reject(p_prob, q_prob, u):
    return u * q_prob < p_prob


def residual_dist(p, q):
    rest = [max(0.0, a - b) for a, b in zip(p, q)]
    return [r / sum(rest) for r in rest] if sum(rest) > 0 else p


def draw(probs, u):
    total = 0.0
    for token, probability in enumerate(probs):
        total += probability
        if u < total:
            return token
    return max(token for token, probability in enumerate(probs) if probability > 0)


def spec_step(prefix, target, draft, k, rng):
    drafted = []
    for _ in range(k):
        drafted.append(draw(draft(prefix + tuple(drafted)), rng.uniform()))
    for i, x in enumerate(drafted):
        text = prefix + tuple(drafted[:i])
        p, q = target(text), draft(text)
        if not accept_or_reject(p[x], q[x], rng.uniform()):
            return drafted[:i] + [draw(residual_dist(p, q), rng.uniform())]
    return drafted + [draw(target(prefix + tuple(drafted)), rng.uniform())]
