from math import inf, nan

import pytest

from specdec.law import law
from specdec.theory import expected_tokens, interpolated_cost, operations_factor, optimal_k, speedup


@pytest.mark.parametrize("alpha", [0, 0.3, 0.8, 1])
@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_expected_tokens_is_the_mean_of_the_exact_law(alpha, k):
    def tokens_of_a_round(choose):
        count = 0
        while count < k and choose.uniform_below(alpha):
            count += 1
        return count + 1

    assert expected_tokens(alpha, k) == pytest.approx(sum(n * mass for n, mass in law(tokens_of_a_round).items()), abs=1e-12)


def test_closed_form():
    assert expected_tokens(0.8, 5) == pytest.approx((1 - 0.8**6) / (1 - 0.8), abs=1e-12)
    assert expected_tokens(1, 7) == 8
    assert expected_tokens([0.9, 0.5], 2) == pytest.approx(1 + 0.9 + 0.45)


# Computed from the closed form; the reference page's table, K (speedup) for α = .5 .6 .7 .8 .9.
TABLE = {
    0.01: [(5, 1.88), (7, 2.30), (9, 2.97), (14, 4.23), (24, 7.49)],
    0.02: [(4, 1.79), (6, 2.17), (8, 2.76), (11, 3.82), (19, 6.37)],
    0.05: [(3, 1.63), (4, 1.92), (6, 2.35), (8, 3.09), (13, 4.67)],
    0.1: [(2, 1.46), (3, 1.67), (4, 1.98), (6, 2.47), (10, 3.43)],
    0.2: [(1, 1.25), (2, 1.40), (3, 1.58), (4, 1.87), (7, 2.37)],
}


@pytest.mark.parametrize("c", TABLE)
def test_optimal_k_table(c):
    found = [optimal_k(alpha, c) for alpha in (0.5, 0.6, 0.7, 0.8, 0.9)]
    assert [(k, round(gain, 2)) for k, gain in found] == TABLE[c]


def test_some_k_helps_exactly_when_alpha_exceeds_c():
    for alpha in (0.0, 0.1, 0.5, 0.9, 1.0):
        for c in (0.0, 0.05, 0.1, 0.5, 0.9, 1.0, 2.0):
            k, gain = optimal_k(alpha, c)
            assert (k > 0) == (alpha > c), (alpha, c)
            assert gain >= ((1 + alpha) / (1 + c) if k else 1.0) - 1e-12


def test_limits():
    assert optimal_k(1, 0.1) == (64, pytest.approx(65 / 7.4))
    assert optimal_k(0, 0) == (0, 1.0)
    assert optimal_k(0.9, 0, k_max=10)[0] == 10
    assert optimal_k(0.9, 0.1, k_max=0) == (0, 1.0)
    assert optimal_k([0.9, 0.9], 0)[0] == 2, "measured rates end the search where they end"


def test_measured_verify_cost_changes_the_answer():
    cost = interpolated_cost({1: 10.0, 2: 10.0, 4: 12.0, 8: 20.0})
    assert [cost(0), cost(1), cost(2), cost(3), cost(7)] == [1, 1, 1.1, 1.2, 2]
    assert speedup(0.8, 3, 0.1, cost) == pytest.approx(expected_tokens(0.8, 3) / 1.5)
    assert optimal_k(0.8, 0.05, 7, cost)[0] < optimal_k(0.8, 0.05, 7)[0]
    with pytest.raises(ValueError, match="ends at 8"):
        cost(8)
    with pytest.raises(ValueError, match="1 token"):
        interpolated_cost({2: 1.0})


def test_circulating_claims():
    """'α = .78, c = .03: K = 4' and 'α = .75, K = 5, a draft 5× cheaper: 2.5×' are wrong."""
    assert optimal_k(0.78, 0.03)[0] == 9
    assert expected_tokens(0.78, 5) - expected_tokens(0.78, 4) == pytest.approx(0.29, abs=0.005)
    assert speedup(0.75, 5, 0.2) == pytest.approx(1.64, abs=0.005)
    assert speedup(0.75, 5, 0.1) == pytest.approx(2.19, abs=0.005)


def test_operations():
    assert operations_factor(0.8, 0, 0.1) == 1
    assert operations_factor(1, 4, 0) == 1
    assert operations_factor(0.5, 4, 0.1) > 2


@pytest.mark.parametrize(("alpha", "k", "c"), [
    (-0.1, 1, 0), (1.1, 1, 0), (nan, 1, 0), (0.5, -1, 0), (0.5, 1.5, 0), (0.5, 1, -1), (0.5, 1, nan), (0.5, 1, inf), ([0.5], 2, 0),
])  # fmt: skip
def test_bad_values_are_named(alpha, k, c):
    with pytest.raises(ValueError, match=r"alpha|k must|k = 2|c must"):
        speedup(alpha, k, c)

