"""Chapter 04's checks, for every seed: each mistake of the catalogue by its name, limits and ties, and right answers of any precision."""

import importlib
import math
from fractions import Fraction

import numpy as np
import pytest

from autograder import checks
from autograder.checks.speedup_mistakes import SEARCHES, SPEEDUP, TOKENS, gain, tokens
from autograder.inside.plain import NotPlain

chapter_04 = importlib.import_module("autograder.checks.04_speedup")
SEEDS = range(20)
FIXED = [(a, c, 64) for c in chapter_04.COSTS for a in chapter_04.ALPHAS]
FIXED += [(*case, 64) for case in (*chapter_04.LOSES, *chapter_04.NARROW, *chapter_04.LATE)]


def best(speed, alpha, c, k_max=64):
    return max(((k, speed(alpha, k, c)) for k in range(k_max + 1)), key=lambda pair: pair[1])


def right_speed(alpha, k, c):
    return tokens(alpha, k) / (c * k + 1)


def last_best(alpha, c, k_max):
    return max(((k, right_speed(alpha, k, c)) for k in range(k_max + 1)), key=lambda pair: pair[::-1])


def first_ahead(alpha, c, k_max, margin):
    found = 0, 1.0
    for k in range(1, k_max + 1):
        if right_speed(alpha, k, c) > found[1] * (1 + margin):
            found = k, right_speed(alpha, k, c)
    return found


def named(mistake):
    """What the check says: a mistake of the same values may have another name."""
    return lambda result: not result.passed and result.message == mistake.name and result.hint == mistake.hint


@pytest.mark.parametrize("mistake", TOKENS, ids=lambda mistake: mistake.name)
def test_each_wrong_tau_is_named_for_every_seed(mistake):
    assert all(named(mistake)(checks.run("04.expected_tokens", mistake.variant, seed=seed)) for seed in SEEDS)


@pytest.mark.parametrize("mistake", SPEEDUP, ids=lambda mistake: mistake.name)
def test_each_wrong_speedup_is_named_for_every_seed(mistake):
    assert all(named(mistake)(checks.run("04.speedup", mistake.variant, seed=seed)) for seed in SEEDS)


@pytest.mark.parametrize("catalogue", [TOKENS, SPEEDUP, SEARCHES])
def test_names_differ(catalogue):
    assert len({mistake.name + mistake.hint for mistake in catalogue}) == len(catalogue)


# Proportional to the speedup for each α and c: a search that maximises them finds the right K.
SAME_K = {
    "the gain over plain decoding, not the speedup", "the sum begins at α and ends at α^(K+1)", "not divided by 1 - α",
    "divided by α instead of 1 - α", "a plus for a minus in the denominator",
}  # fmt: skip


@pytest.mark.parametrize("mistake", SEARCHES, ids=lambda mistake: mistake.name)
def test_each_wrong_search_is_seen_whatever_the_seed_draws_and_named(mistake):
    """Seen by the cases that all students have. Several mistakes can find the same K for every α and c: the first of them is named."""
    wrong = [case for case, k in zip(FIXED, mistake.variant(FIXED)) if not chapter_04._is_best(chapter_04.gains(*case), k)]
    assert bool(wrong) == (mistake.name not in SAME_K)
    if not wrong:
        return

    def student(alpha, c, k_max=64):
        (k,) = mistake.variant([(alpha, c, k_max)])
        return k, right_speed(alpha, max(0, k), c)

    result = checks.run("04.optimal_k", student, seed=3)
    assert not result.passed
    assert result.message in {other.name for other in SEARCHES}


LIMITS = {
    "the largest of equals": ("not the smallest of several", lambda a, c, k_max=64: last_best(a, c, k_max)),
    "one too many": ("k_max + 1 is tried", lambda a, c, k_max=64: best(right_speed, a, c, k_max + 1)),
    "a threshold of 1e-2": ("another K is faster", lambda a, c, k_max=64: first_ahead(a, c, k_max, 1e-2)),
    "a threshold of 1e-4": ("another K is faster", lambda a, c, k_max=64: first_ahead(a, c, k_max, 1e-4)),
    "50 at most": ("the search stops too early", lambda a, c, k_max=64: best(right_speed, a, c, min(k_max, 50))),
    "k_max ignored": ("k_max is ignored", lambda a, c, k_max=64: best(right_speed, a, c)),
    "k_max ignored, 100 tried": ("lies outside", lambda a, c, k_max=64: best(right_speed, a, c, 100)),
    "range(k_max)": ("k_max itself is never tried", lambda a, c, k_max=64: best(right_speed, a, c, k_max - 1) if k_max else (0, 1.0)),
    "64 at most": ("k_max is ignored", lambda a, c, k_max=64: best(right_speed, a, c, min(k_max, 64))),
    "K = 1 where α = c": ("not the smallest of several",
                          lambda a, c, k_max=64: (1, 1.0) if a == c and k_max else best(right_speed, a, c, k_max)),
    "K = 1 where both are 0": ("not the smallest of several",
                               lambda a, c, k_max=64: (1, 1.0) if a == c == 0 else best(right_speed, a, c, k_max)),
    "free drafts never used": ("wrong at a limit", lambda a, c, k_max=64: best(right_speed, a, c, k_max) if c else (0, 1.0)),
    "raises without a cost": ("divides by zero", lambda a, c, k_max=64: 1 / c and best(right_speed, a, c, k_max)),
}  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS)
def test_searches_that_are_nearly_right_are_seen_and_a_limit_costs_half(limit):
    says, student = LIMITS[limit]
    for seed in range(5):
        result = checks.run("04.optimal_k", student, seed=seed)
        assert not result.passed
        assert result.credit == (chapter_04.HALF if "K is faster" not in says and "early" not in says else 0)
        assert says in result.message + result.got


@pytest.mark.parametrize("limit", [0.99, 0.999])
def test_an_alpha_near_1_is_not_1(limit):
    def tau(alpha, k):
        return k + 1 if alpha >= limit else tokens(alpha, k)

    for result in (checks.run("04.expected_tokens", tau), checks.run("04.speedup", lambda a, k, c: tau(a, k) / (c * k + 1))):
        assert (result.passed, result.credit) == (False, chapter_04.HALF)
        assert "is treated as 1" in result.message


def test_a_limit_without_plain_data_has_no_half_credit():
    """In the notebook such an answer is no number, and in grading it does not come through: 0 on both sides."""
    def carried(alpha, k):
        if alpha == 1:
            raise NotPlain("a function, which is no plain data")
        return tokens(alpha, k)

    for student in (carried, lambda alpha, k: tokens(alpha, k) if alpha != 1 else lambda: k + 1):
        result = checks.run("04.expected_tokens", student)
        assert (result.passed, result.credit) == (False, 0), result


# -- right ones --------------------------------------------------------------------------------------------------------


def in_single(alpha, k):
    alpha, one = np.float32(alpha), np.float32(1)
    return np.float32(k + 1) if alpha == one else (one - alpha ** np.float32(k + 1)) / (one - alpha)


def summed_in_single(alpha, k):
    return sum((np.float32(alpha) ** np.float32(i) for i in range(k + 1)), np.float32(0))


STYLES = {
    "closed form": lambda a, k: k + 1 if a == 1 else (1 - a ** (k + 1)) / (1 - a),
    "sum": lambda a, k: sum(a**i for i in range(k + 1)),
    "fractions": lambda a, k: sum(Fraction(a) ** i for i in range(k + 1)),
    "single precision": in_single,
    "summed in single precision": summed_in_single,
    "isclose": lambda a, k: k + 1 if math.isclose(a, 1) else (1 - a ** (k + 1)) / (1 - a),
}


@pytest.mark.parametrize("style", STYLES)
def test_right_ones_pass_for_every_seed_in_any_precision(style):
    tau = STYLES[style]

    def speed(alpha, k, c):
        return tau(alpha, k) / type(tau(alpha, k))(c * k + 1) if "single" in style else tau(alpha, k) / (c * k + 1)

    for seed in SEEDS:
        assert checks.run("04.expected_tokens", tau, seed=seed).passed
        assert checks.run("04.speedup", speed, seed=seed).passed
    for seed in SEEDS[: 2 if style == "fractions" else 6]:
        assert checks.run("04.optimal_k", lambda a, c, k_max=64: best(speed, a, c, k_max), seed=seed).passed


@pytest.mark.parametrize("style", STYLES)
def test_ties_are_exact_in_any_precision(style):
    """α = c = m/64: K = 1 has a speedup of exactly 1, and every other K less; so no rounding decides which K is the smallest."""
    tau = STYLES[style]
    for m in range(4, 61):
        alpha = m / 64
        kind = np.float32 if "single" in style else float
        speeds = [tau(alpha, k) / kind(alpha * k + 1) for k in range(65)]
        assert speeds[0] == speeds[1] == 1
        assert max(speeds[2:]) < 1


def test_what_the_catalogue_computes_with_is_the_formula():
    for alpha, k, c in [(0.3, 4, 0.1), (0.9, 12, 0.02)]:
        assert gain(alpha, k, c) == pytest.approx(float(chapter_04.gain(alpha, k, c)))
        assert tokens(alpha, k) == pytest.approx(float(chapter_04.tokens(alpha, k)))
