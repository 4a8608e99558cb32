"""Exact fractions where there is no root, judged tokens as a flat list of coins, and a class."""

from fractions import Fraction


def acceptance_rate(p, q):
    return float(1 - sum(max(Fraction(a) - Fraction(b), 0) for a, b in zip(p, q)))


class Logits:
    def __init__(self, values):
        self.values = values

    def at(self, temperature):
        best = max(self.values)
        if not temperature:
            yield from (1.0 if x == self.values.index(best) else 0.0 for x in range(len(self.values)))
            return
        total = sum(math.exp((z - best) / temperature) for z in self.values)
        for z in self.values:
            yield math.exp((z - best) / temperature) / total


def alpha_at(target_logits, draft_logits, target_temperature, draft_temperature):
    return acceptance_rate(Logits(target_logits).at(target_temperature), Logits(draft_logits).at(draft_temperature))


def coins(drafted, accepted):
    return [1] * accepted + [0] * (accepted < drafted)


def alpha_from_rounds(rounds):
    flat = [coin for drafted, accepted in rounds for coin in coins(drafted, accepted)]
    alpha = Fraction(sum(flat), len(flat))
    return [float(alpha), 1.96 * float(alpha * (1 - alpha) / len(flat)) ** 0.5]


def error_by_rounds(rounds):
    tossed = [coins(*r) for r in rounds]
    N = sum(map(len, tossed))
    alpha = Fraction(sum(map(sum, tossed)), N)
    return 1.96 * math.sqrt(sum((sum(c) - alpha * len(c)) ** 2 for c in tossed)) / N


def better_kl_worse_alpha(p):
    order = sorted(range(len(p)), key=lambda x: p[x])
    rare, common = order[0], order[-1]
    second, first = list(p), list(p)
    second[rare], second[common] = 1e-15, p[common] + p[rare] - 1e-15
    moved = p[rare] + 0.011
    first[rare] += moved
    for x in order[1:]:
        first[x] -= moved * p[x] / (1 - p[rare])
    return first, second
