"""Plain loops, with prints."""

def accept_or_reject(p_prob, q_prob, u):
    if p_prob >= q_prob:
        return True
    return u <= p_prob / q_prob


def residual_dist(p, q):
    rest = []
    for token in range(len(p)):
        rest.append(p[token] - q[token] if p[token] > q[token] else 0.0)
    mass = 0.0
    for value in rest:
        mass += value
    if mass == 0:
        return p
    return [value / mass for value in rest]


def spec_step(prefix, target, draft, k, rng):
    text, proposals = tuple(prefix), []
    print("step with k =", k)
    for _ in range(k):
        q = draft(text)
        x = rng.categorical(q)
        proposals.append((text, x, q))
        text = text + (x,)
    out = []
    for before, x, q in proposals:
        p = target(before)
        coin = rng.uniform()
        if accept_or_reject(p[x], q[x], coin):
            out.append(x)
        else:
            out.append(rng.categorical(residual_dist(p, q)))
            print("rejected", x)
            break
    else:
        out.append(rng.categorical(target(text)))
    return out
