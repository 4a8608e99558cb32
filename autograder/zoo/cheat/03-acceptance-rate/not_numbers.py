"""NaN compares as false with everything, and an infinite error covers every α.

Cheats: 03.acceptance_rate, 03.alpha_at, 03.alpha_from_rounds, 03.error_by_rounds, 03.better_kl_worse_alpha
"""

NAN = float("nan")


def acceptance_rate(p, q):
    return NAN


def alpha_at(target_logits, draft_logits, target_temperature, draft_temperature):
    return NAN


def alpha_from_rounds(rounds):
    return 0.5, float("inf")


def error_by_rounds(rounds):
    return NAN


def better_kl_worse_alpha(p):
    return [NAN] * len(p), [NAN] * len(p)
