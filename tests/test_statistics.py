import math

import numpy as np
import pytest
from scipy import stats

from specdec import statistics
from specdec.statistics import agrawal_threshold, chi_square, expected_tv, goodness_of_fit, samples_needed, sampling_radius

P = np.array([0.5, 0.25, 0.15, 0.07, 0.03])


def draws(p, n, runs, seed=0):
    return np.random.default_rng(seed).multinomial(n, p, size=runs)


@pytest.mark.parametrize("test", [goodness_of_fit, chi_square])
def test_right_samples_pass_and_a_wrong_distribution_fails(test):
    wrong = P + np.array([0.08, -0.08, 0, 0, 0])
    assert all(test(counts, P) for counts in draws(P, 5000, 300))
    assert not any(test(counts, P) for counts in draws(wrong, 5000, 300))


@pytest.mark.parametrize("false_fail", [0.2, 0.02])
def test_the_false_fail_rate_is_kept(false_fail):
    runs = 4000
    failed = sum(not goodness_of_fit(counts, P, false_fail) for counts in draws(P, 300, runs))
    assert failed / runs <= false_fail
    failed = sum(not chi_square(counts, P, false_fail) for counts in draws(P, 300, runs))
    assert stats.binom.sf(failed - 1, runs, 1.3 * false_fail) > 1e-6, "chi-square is asymptotic, but not that far off"


@pytest.mark.parametrize("false_fail", [1e-2, 1e-3, 1e-6, 1e-9])
def test_the_false_fail_rate_is_kept_exactly_for_two_outcomes(false_fail):
    """No sampling: the probabilities of all counts that fail a right program, added up."""
    n, p = 300, 0.3
    failing = [k for k in range(n + 1) if not goodness_of_fit([k, n - k], [p, 1 - p], false_fail)]
    assert 0 < stats.binom.pmf(failing, n, p).sum() <= false_fail


def test_rare_cells_do_not_break_the_bound():
    """20 cells of expectation 0.5: plain Pearson fails right programs far more often than it says; G with its bound does not."""
    n = 1000
    p = np.r_[np.full(20, 0.5 / n), 1 - 10 / n]
    counts = draws(p, n, 20_000)
    pearson = ((counts - n * p) ** 2 / (n * p)).sum(1)
    assert (pearson > stats.chi2.isf(1e-4, 20)).mean() > 1e-3
    assert sum(not goodness_of_fit(c, p, 1e-4) for c in counts[:2000]) == 0


def test_a_discrepancy_of_the_stated_size_is_seen():
    result = goodness_of_fit(draws(P, 3000, 1)[0], P, false_fail=1e-3)
    tv = result.detectable_tv
    shifted = P + np.array([tv, 0, 0, 0, 0]) - tv * np.array([0, 0.5, 0.3, 0.14, 0.06])
    assert tv < 0.2
    missed = sum(bool(goodness_of_fit(counts, P, 1e-3)) for counts in draws(shifted, 3000, 2000))
    assert missed <= 2000 * 1e-3 + 5


@pytest.mark.parametrize("false_fail", [1e-2, 1e-6])
@pytest.mark.parametrize("test", [goodness_of_fit, chi_square])
def test_the_stated_power_holds_exactly_for_two_outcomes(test, false_fail):
    """No sampling: of a law that is off by the stated total variation, the probabilities of all counts that pass, added up."""
    n, p = 400, 0.5
    tv = test([200, 200], [p, 1 - p], false_fail).detectable_tv
    passing = [k for k in range(n + 1) if test([k, n - k], [p, 1 - p], false_fail)]
    for shifted in (p + tv, p - tv):
        assert 0 < shifted < 1
        assert stats.binom.pmf(passing, n, shifted).sum() <= false_fail


@pytest.mark.parametrize("samples", [50, 1000, 40_000])
@pytest.mark.parametrize("cells", [2, 5])
def test_the_stated_power_is_where_two_radii_meet(samples, cells):
    """A p̂ that passes lies within one radius of the reference, and all but surely within another of its own law."""
    counts, p = np.full(cells, samples / cells), np.full(cells, 1 / cells)
    noise = sampling_radius(samples, cells, 1e-6)
    assert goodness_of_fit(counts, p, 1e-6).detectable_tv == pytest.approx(min(1, 2 * noise))
    passing = math.sqrt(stats.chi2.isf(1e-6, cells - 1) / (2 * samples))
    assert chi_square(counts, p, 1e-6).detectable_tv == pytest.approx(min(1, passing + noise))


@pytest.mark.parametrize(("expected", "pooled"), [
    ([60, 40], [60, 40]), ([50, 30, 12, 8], [8, 12, 30, 50]),  # nothing is rare
    ([80, 14, 3, 3], [6, 14, 80]),  # the rare ones are enough together
    ([80, 17, 2, 1], [20, 80]), ([93, 5, 2], [7, 93]),  # they need one more, and one is enough
    ([2, 1, 0], [3]), ([97, 3, 0], [100]),  # all there is
])  # fmt: skip
def test_rare_outcomes_are_pooled_until_the_pool_expects_enough(expected, pooled):
    observed, merged = statistics._merge_rare([n + 1 for n in expected], expected)
    assert sorted(merged) == sorted(pooled)
    assert sum(observed) == sum(expected) + len(expected), "no sample is lost"


def test_samples_needed_is_the_inverse_of_the_power():
    for tv in (0.02, 0.1, 0.3):
        n = samples_needed(tv, len(P), 1e-9)
        assert 2 * sampling_radius(n, len(P), 1e-9) <= tv < 2 * sampling_radius(n - 1, len(P), 1e-9) + 1e-12


def test_an_impossible_token_fails_at_once():
    for test in (goodness_of_fit, chi_square):
        result = test([1_000_000, 1], [1.0, 0.0])
        assert not result
        assert result.statistic == math.inf


def test_threshold_solves_the_bound():
    for cells, rate in [(2, 1e-9), (16, 1e-9), (50, 0.05)]:
        t = agrawal_threshold(cells, rate)
        assert t > cells - 1
        assert math.exp(-t) * (math.e * t / (cells - 1)) ** (cells - 1) == pytest.approx(rate, rel=1e-6)
    assert agrawal_threshold(1, 1e-9) == 0


def test_noise_floor_is_what_a_perfect_sampler_shows():
    p = np.random.default_rng(0).dirichlet(np.ones(32))
    shown = np.abs(draws(p, 20_000, 300) / 20_000 - p).sum(1).mean() / 2
    assert expected_tv(p, 20_000) == pytest.approx(shown, rel=0.03)


@pytest.mark.parametrize(("counts", "p", "message"), [
    ([1, 2], [0.5, 0.3, 0.2], "must both be"), ([0, 0], [0.5, 0.5], "not all 0"),
    ([-1, 2], [0.5, 0.5], ">= 0"), ([1, 2], [0.5, 0.6], "sum to 1"),
])  # fmt: skip
def test_bad_input_is_named(counts, p, message):
    with pytest.raises(ValueError, match=message):
        goodness_of_fit(counts, p)
    with pytest.raises(ValueError, match="false_fail"):
        goodness_of_fit([1, 2], [0.5, 0.5], 0)
