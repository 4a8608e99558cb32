"""How often a right solution loses a mark by chance: a bound for each check, from the numbers that the checks use, and their sum.

Two things can go wrong. A sample can look unlike its law: such a test states its rate. And a case that a seed draws can lie so near to
the boundary between two answers that rounding decides. How often it does is extrapolated: the cases of many seeds that lie in a window
around a boundary are counted, and their number is scaled to the width of the rounding, as if margins were spread evenly near 0.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from scipy import stats

from autograder import checks, zoo
from autograder.checks import rounds, step_tables, stepping, tiny

chapter_02 = importlib.import_module("autograder.checks.02_rejection_rule")
chapter_04 = importlib.import_module("autograder.checks.04_speedup")
chapter_05 = importlib.import_module("autograder.checks.05_kv_rollback")

MOST = 1e-6  # for all checks of a student
DOUBLE = 2.0**-48  # relative error of a few operations in double precision, and in single
SINGLE = 2.0**-22
FORWARD = 2.0**-40  # of a forward of chapter 05's model
RIGHT = {"02": "recursion", "03": "fractions", "04": "closed_form", "05": "slots"}
SEEDS = range(1, 101)
SURE = 0.999  # how sure a count's upper limit is

Case = tuple  # the arguments of one call


def functions(check: str) -> tuple[list[str], dict[str, Callable]]:
    """The names of what a check is called with, and all that a right solution defines."""
    (case,) = [case for case in zoo.cases("right") if str(case) == f"{check[:2]}-{RIGHT[check[:2]]}"]
    return zoo.checks(case.assignment)[check], zoo.functions(case.assignment, case)


def calls(check: str, seed: int, names: list[str], right: dict[str, Callable]) -> list[Case]:
    """What a check calls its function with."""
    found = []

    def spy(*arguments):
        found.append(tuple(tuple(a) if isinstance(a, list) else a for a in arguments))
        return right[names[0]](*arguments)

    assert checks.run(check, spy, seed=seed).passed
    return found


def drawn(check: str, seeds: range) -> Iterator[list[Case]]:
    """For each seed the cases that it alone has; the others are the same for every student."""
    names, right = functions(check)
    same = set(calls(check, -1, names, right)) & set(calls(check, -2, names, right))
    for seed in seeds:
        yield [case for case in calls(check, seed, names, right) if case not in same]


# -- how far a case lies from where rounding would decide: a relative error as large as this can change the verdict ----------


def of_acceptance(p: float, q: float, u: float) -> float:
    return abs(u * q - p) / p


def of_residual(p: list[float], q: list[float]) -> float:
    """Its mass: what the differences are divided by."""
    return stepping.EXACT * sum(max(0.0, a - b) for a, b in zip(p, q))


def of_closed_form(alpha: float, *_: float) -> float:
    return chapter_04.CLOSE * (1 - alpha)  # 1 - α is what the sum is divided by


@dataclass(frozen=True)
class Rounding:
    """Of one check: the margin of a case, and a window of margins in which cases are counted."""

    margin: Callable[..., float]
    window: float

    def rate(self, check: str) -> float:
        near = sum(self.margin(*case) < self.window for cases in drawn(check, SEEDS) for case in cases)
        return scaled(near, len(SEEDS), DOUBLE / self.window)


ROUNDING = {
    "02.accept_or_reject": Rounding(of_acceptance, 1e-5),
    "02.residual_dist": Rounding(of_residual, 1e-2 * stepping.EXACT),
    "04.expected_tokens": Rounding(of_closed_form, 1e-2 * chapter_04.CLOSE),
    "04.speedup": Rounding(of_closed_form, 1e-2 * chapter_04.CLOSE),
}
NO_CHANCE = {
    "01.cache_bytes", "01.weights", "01.ridge", "01.forward_seconds",  # bounds that are far wider than rounding
    "01.largest_batch",  # a third of a text, at least, from the next whole number
    "02.spec_step", "02.exact_law",  # products of sixths, quarters or halves; a law may be off by far more than rounding
    # Values within 1e-5, from probabilities in hundredths, logits in eighths and whole counts; the largest logits are equal or 0.5 apart.
    "03.acceptance_rate", "03.alpha_at", "03.alpha_from_rounds", "03.error_by_rounds",
    "03.better_kl_worse_alpha",  # no draw: two numbers of the submission's own drafts, compared with 0.01
    "04.optimal_k",  # the best K is ahead of every other by more than single precision loses, or as good as it to the last bit
    "05.append", "05.rollback",  # numbers that are copied, not computed with
}  # fmt: skip


def scaled(near: int, seeds: int, part: float) -> float:
    """The rate at which a case falls into a part of the window in which `near` cases of so many seeds lay: its upper limit."""
    return stats.chi2.ppf(SURE, 2 * (near + 1)) / 2 / seeds * part


def ties(check: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """How often the two largest logits of a forward are as good as equal, so that rounding decides which token is right."""
    gaps = []

    class Watched(tiny.TinyAttention):
        def __call__(self, tokens, cache):
            logits = super().__call__(tokens, cache)
            first, second = logits.topk(2).values.T
            gaps.extend(((first - second) / logits.abs().amax(1)).tolist())
            return logits

    names, right = functions(check)
    seeds, window = SEEDS[:40], 1e-3
    chapter_05.cases_of.cache_clear()
    with monkeypatch.context() as patched:
        for module in (chapter_05, rounds):
            patched.setattr(module, "TinyAttention", Watched)
        assert all(checks.run(check, *(right[name] for name in names), seed=seed).passed for seed in seeds)
    chapter_05.cases_of.cache_clear()
    assert gaps
    return scaled(sum(gap < window for gap in gaps), len(seeds), FORWARD / window)


def sampling() -> float:
    """Of 02.equivalence: the G tests' own rate, and Chernoff's bound for TV >= CLOSE, over all subsets of the vocabulary."""
    # A seed names the tokens anew and changes nothing else.
    law, length = step_tables.text_law(step_tables.text_tables(0), step_tables.PREFIX, chapter_02.TEXT), chapter_02.TEXT
    texts = sum(chapter_02.TEXTS.values())
    assert texts * length == 50_000
    total = chapter_02.FALSE_FAIL / 2
    for subset in ({0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}):
        counts = [sum(m for text, m in law.items() if sum(t in subset for t in text) == n) for n in range(length + 1)]
        level = sum(n * m for n, m in enumerate(counts)) + length * chapter_02.CLOSE
        exponents = (math.log(sum(m * math.exp(s * n) for n, m in enumerate(counts))) - s * level for s in (i / 100 for i in range(1, 300)))
        total += math.exp(texts * min(exponents))
    # KL(p̂‖p) >= CLOSE of three tokens takes a TV of CLOSE or more: it is at most χ², and that at most 4 TV² / min p.
    assert 4 * chapter_02.CLOSE**2 / min(sum(m * text.count(t) for text, m in law.items()) / length for t in range(3)) < chapter_02.CLOSE
    return total


def test_a_right_step_fails_the_sampling_check_once_in_a_billion_runs():
    assert sampling() <= chapter_02.FALSE_FAIL


def test_a_right_solution_loses_no_mark_by_chance_in_the_whole_course(monkeypatch):
    rates = {check: rounding.rate(check) for check, rounding in ROUNDING.items()}
    rates |= dict.fromkeys(NO_CHANCE, 0.0) | {"02.equivalence": sampling()}
    rates |= {check: ties(check, monkeypatch) for check in ("05.verify_and_rollback", "05.speculate")}
    assert rates.keys() == set(checks.names()), "a check without a stated rate"
    print("\n".join(f"{check}: {rate:.1e}" for check, rate in sorted(rates.items())), f"all: {sum(rates.values()):.1e}", sep="\n")
    assert sum(rates.values()) < MOST


def test_rounding_does_not_reach_what_a_tie_or_a_difference_may_be():
    assert SINGLE < chapter_04.TIE / 5 < chapter_04.APART / 20
    assert DOUBLE < stepping.EXACT / 100
    assert FORWARD < rounds.CLOSE / 100


@pytest.mark.parametrize(("check", "least", "seeds"), [
    ("02.accept_or_reject", 100 * SINGLE, range(1, 3001)), ("02.residual_dist", SINGLE / 2, SEEDS),
])  # fmt: skip
def test_no_case_comes_near_what_single_precision_would_decide(check, least, seeds):
    margin = ROUNDING[check].margin
    assert min(margin(*case) for cases in drawn(check, seeds) for case in cases) > least
