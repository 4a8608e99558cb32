"""numpy, all coins at once, and a warning."""

import warnings

import numpy as np


def accept_or_reject(p_prob, q_prob, u):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.float64(u) < np.minimum(1.0, np.float64(p_prob) / np.float64(q_prob))


def residual_dist(p, q):
    p, q = np.asarray(p, dtype=float), np.asarray(q, dtype=float)
    rest = np.clip(p - q, 0, None)
    if rest.sum() == 0:
        warnings.warn("p equals q: nothing is left for the residual")
        return p
    return rest / rest.sum()


def spec_step(prefix, target, draft, k, rng):
    drafted = np.zeros(k, dtype=int)
    q = []
    for i in range(k):
        q.append(np.array(draft(prefix + tuple(drafted[:i]))))
        drafted[i] = rng.categorical(q[i])
    p = [np.array(target(prefix + tuple(drafted[:i]))) for i in range(k + 1)]
    coins = np.array([rng.uniform() for _ in range(k)])
    accepted = np.array([accept_or_reject(p[i][x], q[i][x], coins[i]) for i, x in enumerate(drafted)], dtype=bool)
    count = k if accepted.all() else int(np.argmin(accepted))
    last = p[k] if count == k else residual_dist(p[count], q[count])
    return list(drafted[:count]) + [rng.categorical(last)]
