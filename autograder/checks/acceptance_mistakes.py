"""What chapter 03's checks compare with, and wrong variants of it by which a mistake is recognised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from autograder.checks.core import Mistake

Z = 1.96
Distribution = list[float]
Rounds = list[tuple[int, int]]  # (drafted, accepted)


def overlap(p: Sequence[float], q: Sequence[float]) -> float:
    return float(sum(min(Fraction(a), Fraction(b)) for a, b in zip(p, q)))


def divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """KL(p‖q) in nats."""
    if any(a > 0 and b == 0 for a, b in zip(p, q)):
        return math.inf
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q) if a > 0)


def softmax(logits: Sequence[float], T: float) -> Distribution:
    """Lowest id on ties at T = 0."""
    top = max(logits)
    if T == 0:
        return [float(x == logits.index(top)) for x in range(len(logits))]
    weights = [math.exp((z - top) / T) for z in logits]
    return [w / math.fsum(weights) for w in weights]


OVERLAP = [
    Mistake("the total variation, not the acceptance rate", "α = 1 - TV.", lambda p, q: 1 - overlap(p, q)),
    Mistake("TV without its half", "TV is half of Σ |p - q|.", lambda p, q: 2 * overlap(p, q) - 1),
    Mistake("the maximum in place of the minimum", "Accepted is what p and q have in common.", lambda p, q: 2 - overlap(p, q)),
    Mistake(
        "Σ p q: the chance that two independent draws agree",
        "The rule needs no draw of the target's: Σ min(p, q).",
        lambda p, q: sum(a * b for a, b in zip(p, q)),
    ),
    Mistake(
        "the ratios are averaged over p",
        "The drafted token is drawn from q: weigh min(1, p/q) with q.",
        lambda p, q: sum(a * min(1, a / b) if b else a for a, b in zip(p, q)),
    ),
    Mistake(
        "the ratios are averaged over the vocabulary",
        "Weigh min(1, p/q) with q(x): tokens are not drafted equally often.",
        lambda p, q: sum(min(1, a / b) for a, b in zip(p, q) if b) / len(p),
    ),
    Mistake(
        "the ratio is not cut at 1",
        "min(1, p/q): without it Σ q · p/q is just 1.",
        lambda p, q: sum(a for a, b in zip(p, q) if b),
    ),
    Mistake(
        "q/p in place of p/q",
        "Accept with probability min(1, p/q).",
        lambda p, q: sum(b * min(1, b / a) if a else b for a, b in zip(p, q)),
    ),
    Mistake(
        "Σ √(p q), which is another likeness", "α is Σ min(p, q).", lambda p, q: sum(math.sqrt(a * b) for a, b in zip(p, q))
    ),
    Mistake(
        "e^(-KL), which falls as KL grows but is not α",
        "KL does not determine α: Σ min(p, q).",
        lambda p, q: math.exp(-divergence(p, q)),
    ),
    Mistake(
        "whether the largest entries agree: α at temperature 0",
        "Sum over the whole vocabulary.",
        lambda p, q: float(p.index(max(p)) == q.index(max(q))),
    ),
]


def at(target: list[float], draft: list[float], T: float, D: float) -> float:
    return overlap(softmax(target, T), softmax(draft, D))


TEMPERATURE = [
    Mistake(
        "the draft gets the target's temperature", "The fourth argument is the draft's own.", lambda z, y, T, D: at(z, y, T, T)
    ),
    Mistake(
        "the target gets the draft's temperature", "The third argument is the target's own.", lambda z, y, T, D: at(z, y, D, D)
    ),
    Mistake("the two temperatures are exchanged", "The target's comes first.", lambda z, y, T, D: at(z, y, D, T)),
    Mistake(
        "the temperature is applied to the target alone",
        "Divide the draft's logits by its temperature too.",
        lambda z, y, T, D: at(z, y, T, 1),
    ),
    Mistake(
        "the temperature is applied to the draft alone",
        "Divide the target's logits by its temperature too.",
        lambda z, y, T, D: at(z, y, 1, D),
    ),
    Mistake(
        "the temperature is ignored",
        "Divide the logits by it, before the softmax. Probabilities divided by T are the same once they are normalised.",
        lambda z, y, T, D: at(z, y, 1, 1),
    ),
    Mistake("multiplied by the temperature", "Divide: a high temperature flattens.", lambda z, y, T, D: at(z, y, 1 / T, 1 / D)),
    Mistake("1 - α, the total variation", "α = 1 - TV.", lambda z, y, T, D: 1 - at(z, y, T, D)),
    Mistake(
        "α at T = 1 is scaled with the temperature",
        "Both distributions change: compute them at their temperatures.",
        lambda z, y, T, D: at(z, y, 1, 1) / T,
    ),
]


def judged(drafted: int, accepted: int) -> int:
    return min(accepted + 1, drafted)


def pooled(rounds: Rounds) -> float:
    return sum(a for _, a in rounds) / sum(judged(*r) for r in rounds)


def coin_error(rounds: Rounds, alpha: float | None = None) -> float:
    alpha = pooled(rounds) if alpha is None else alpha
    return Z * math.sqrt(alpha * (1 - alpha) / sum(judged(*r) for r in rounds))


def scatter_error(rounds: Rounds) -> float:
    alpha = pooled(rounds)
    return Z * math.sqrt(sum((a - alpha * judged(d, a)) ** 2 for d, a in rounds)) / sum(judged(*r) for r in rounds)


def _drafting(rounds: Rounds) -> Rounds:
    return [r for r in rounds if r[0]]


FULL = "A round that accepted all it drafted judged no further token: min(accepted + 1, drafted)."
Z_HINT = "A 95 % interval reaches 1.96 standard errors to either side."

ALPHA = [
    Mistake(
        "accepted over drafted: tokens after a rejection were never judged",
        "Divide by min(accepted + 1, drafted), added up.",
        lambda rounds: sum(a for _, a in rounds) / sum(d for d, _ in rounds),
    ),
    Mistake(
        "a full acceptance counts as a rejection too",
        FULL,
        lambda rounds: sum(a for _, a in rounds) / sum(a + 1 for _, a in rounds),
    ),
    Mistake(
        "a full acceptance counts as a rejection too",
        FULL,
        lambda rounds: sum(a for _, a in rounds) / sum(a + 1 for d, a in rounds if d),
    ),
    Mistake(
        "a round without a draft counts as a rejection",
        "It judged nothing: min(0 + 1, 0) = 0.",
        lambda rounds: sum(a for _, a in rounds) / sum(max(1, judged(d, a)) for d, a in rounds),
    ),
    Mistake(
        "the rates of the rounds are averaged",
        "Add up accepted and judged tokens over all rounds, then divide once.",
        lambda rounds: sum(a / judged(d, a) for d, a in _drafting(rounds)) / len(_drafting(rounds)),
    ),
    Mistake(
        "accepted over drafted, averaged over the rounds",
        "Add up accepted and judged tokens over all rounds, then divide once.",
        lambda rounds: sum(a / d for d, a in _drafting(rounds)) / len(_drafting(rounds)),
    ),
    Mistake(
        "the share of rounds that accepted something",
        "Count tokens, not rounds: later positions were judged too.",
        lambda rounds: sum(a > 0 for _, a in rounds) / len(_drafting(rounds)),
    ),
    Mistake(
        "accepted tokens for each round, which is no rate",
        "Divide by the judged tokens.",
        lambda rounds: sum(a for _, a in rounds) / len(rounds),
    ),
    Mistake(
        "the recovered and bonus tokens count as accepted",
        "They were not drafted. Leave them out.",
        lambda rounds: sum(a + 1 for _, a in rounds) / sum(d + 1 for d, _ in rounds),
    ),
    Mistake("the share of rejected tokens", "α is the share of accepted ones.", lambda rounds: 1 - pooled(rounds)),
]

ERROR = [
    Mistake(
        "the error is divided by the number of rounds, not of judged tokens",
        "N counts the judged tokens.",
        lambda rounds: Z * math.sqrt(pooled(rounds) * (1 - pooled(rounds)) / len(rounds)),
    ),
    Mistake(
        "the error is divided by the number of drafted tokens",
        "N counts the judged tokens alone.",
        lambda rounds: Z * math.sqrt(pooled(rounds) * (1 - pooled(rounds)) / sum(d for d, _ in rounds)),
    ),
    Mistake("the standard error without 1.96", Z_HINT, lambda rounds: coin_error(rounds) / Z),
    Mistake("2 standard errors, not 1.96", Z_HINT, lambda rounds: coin_error(rounds) * 2 / Z),
    Mistake(
        "the width of the whole interval, not half of it", "Return what stands after ±.", lambda rounds: 2 * coin_error(rounds)
    ),
    Mistake("the root of the variance is missing", "√(α(1 - α)/N).", lambda rounds: coin_error(rounds) ** 2 / Z),
    Mistake(
        "the variance is not divided by N",
        "√(α(1 - α)/N): more tokens, less error.",
        lambda rounds: Z * math.sqrt(pooled(rounds) * (1 - pooled(rounds))),
    ),
    Mistake(
        "N stands outside the root",
        "√(α(1 - α)/N): N is inside the root.",
        lambda rounds: Z * math.sqrt(pooled(rounds) * (1 - pooled(rounds))) / sum(judged(*r) for r in rounds),
    ),
]

SCATTER = [
    Mistake(
        "the error of a coin: how the rounds scatter is not used", "Square the surplus of each round, a - α n.", coin_error
    ),
    Mistake("the standard error without 1.96", Z_HINT, lambda rounds: scatter_error(rounds) / Z),
    Mistake("2 standard errors, not 1.96", Z_HINT, lambda rounds: scatter_error(rounds) * 2 / Z),
    Mistake(
        "the root is missing",
        "√Σ (a - α n)².",
        lambda rounds: Z * (scatter_error(rounds) / Z) ** 2 * sum(judged(*r) for r in rounds),
    ),
    Mistake(
        "the squares are missing",
        "Square each surplus before you add them: they sum to 0.",
        lambda rounds: Z * sum(abs(a - pooled(rounds) * judged(d, a)) for d, a in rounds) / sum(judged(*r) for r in rounds),
    ),
    Mistake(
        "the surpluses are added before they are squared",
        "Square each, then add. Their sum is 0 by the choice of α.",
        lambda rounds: 0.0,
    ),
    Mistake(
        "divided by the number of rounds, not of judged tokens",
        "N counts the judged tokens.",
        lambda rounds: scatter_error(rounds) * sum(judged(*r) for r in rounds) / len(rounds),
    ),
    Mistake(
        "N stands inside the root",
        "Divide after the root.",
        lambda rounds: scatter_error(rounds) * math.sqrt(sum(judged(*r) for r in rounds)),
    ),
    Mistake(
        "a - α: a round expects α for each judged token",
        "The surplus is a - α n.",
        lambda rounds: Z * math.sqrt(sum((a - pooled(rounds)) ** 2 for _, a in rounds)) / sum(judged(*r) for r in rounds),
    ),
    Mistake(
        "the surplus is taken over the drafted tokens",
        "n counts judged tokens: min(accepted + 1, drafted).",
        lambda rounds: Z * math.sqrt(sum((a - pooled(rounds) * d) ** 2 for d, a in rounds)) / sum(judged(*r) for r in rounds),
    ),
    Mistake(
        "the width of the whole interval, not half of it",
        "Return what stands after ±.",
        lambda rounds: 2 * scatter_error(rounds),
    ),
]
