"""Whole arrays in numpy, α as 1 - TV, and drafts found by a search."""

import numpy as np


def acceptance_rate(p, q):
    return 1 - np.abs(np.asarray(p) - np.asarray(q)).sum() / 2


def softmax(logits, temperature):
    z = np.asarray(logits, dtype=float)
    if temperature == 0:
        return np.eye(len(z))[z.argmax()]
    weights = np.exp((z - z.max()) / temperature)
    return weights / weights.sum()


def alpha_at(target_logits, draft_logits, target_temperature, draft_temperature):
    return acceptance_rate(softmax(target_logits, target_temperature), softmax(draft_logits, draft_temperature))


def judged_and_accepted(rounds):
    drafted, accepted = np.array(rounds).T
    return np.minimum(accepted + 1, drafted), accepted


def alpha_from_rounds(rounds):
    n, a = judged_and_accepted(rounds)
    alpha = a.sum() / n.sum()
    return np.array([alpha, 1.96 * np.sqrt(alpha * (1 - alpha) / n.sum())])


def error_by_rounds(rounds):
    n, a = judged_and_accepted(rounds)
    return 1.96 * np.linalg.norm(a - a.sum() / n.sum() * n) / n.sum()


def better_kl_worse_alpha(p):
    p, rng = np.array(p), np.random.default_rng(0)
    second = np.where(np.arange(len(p)) == p.argmin(), 1e-12, p)
    second /= second.sum()
    while True:
        first = p * np.exp(rng.normal(0, 0.3, len(p)))
        first /= first.sum()
        worse = acceptance_rate(p, first) < acceptance_rate(p, second) - 0.012
        if worse and (p * np.log(p / first)).sum() < (p * np.log(p / second)).sum() - 0.012:
            return np.stack([first, second])
