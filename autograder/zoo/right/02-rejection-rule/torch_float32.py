"""torch in single precision, tokens as tensors."""

import torch


def accept_or_reject(p_prob, q_prob, u):
    p, q = torch.tensor(p_prob), torch.tensor(q_prob)
    return torch.tensor(u) < (p / q).clamp(max=1)


def residual_dist(p, q):
    p, q = torch.tensor(p), torch.tensor(q)
    rest = torch.relu(p - q)
    return rest / rest.sum() if rest.sum() > 1e-7 else p


def spec_step(prefix, target, draft, k, rng):
    tokens = list(prefix)
    q = []
    for _ in range(k):
        q.append(draft(tokens))
        tokens.append(rng.categorical(torch.tensor(q[-1])))
    n = len(prefix)
    for i in range(k):
        p, x = target(tokens[: n + i]), tokens[n + i]
        if not accept_or_reject(p[x], q[i][x], rng.uniform()):
            return tokens[n : n + i] + [rng.categorical(residual_dist(p, q[i]))]
    return torch.tensor(tokens[n:] + [rng.categorical(target(tokens))])
