from fractions import Fraction

import numpy as np
import pytest
import torch

from specdec.law import law, law_distance


def test_two_dice():
    die = [Fraction(1, 6)] * 6
    total = law(lambda choose: choose.categorical(die) + choose.categorical(die) + 2)
    assert total == {n: Fraction(6 - abs(n - 7), 36) for n in range(2, 13)}


def test_the_number_of_choices_may_depend_on_earlier_ones():
    def until_heads(choose, most=4):
        flips = 1
        while flips < most and not choose.uniform_below(Fraction(1, 2)):
            flips += 1
        return flips

    assert law(until_heads) == {1: Fraction(1, 2), 2: Fraction(1, 4), 3: Fraction(1, 8), 4: Fraction(1, 8)}


def test_impossible_branches_are_never_taken():
    seen = []
    assert law(lambda choose: seen.append((choose.categorical([0, 1, 0]), choose.uniform_below(2), choose.uniform_below(-1)))) == {None: 1}
    assert seen == [(1, True, False)]


def test_uniform_returns_a_number_inside_each_interval():
    found = law(lambda choose: choose.uniform([0.25, 0.75, 0.75, -1, 2]))
    assert found == {0.125: 0.25, 0.5: 0.5, 0.875: 0.25}


def test_numpy_and_torch_weights():
    assert law(lambda choose: choose.categorical(np.array([0.5, 0.5]))) == {0: 0.5, 1: 0.5}
    assert law(lambda choose: choose.categorical(torch.tensor([0.5, 0.5]))) == {0: 0.5, 1: 0.5}
    assert law(lambda choose: choose.uniform_below(torch.tensor(0.25))) == {True: 0.25, False: 0.75}


def test_law_agrees_with_sampling():
    """The slow twin: the same program run on random numbers."""
    p = [0.2, 0.5, 0.3]

    def program(choose):
        first = choose.categorical(p)
        return first, choose.uniform_below(0.3 * first)

    class Sampled:
        generator = np.random.default_rng(0)

        def categorical(self, p):
            return int(self.generator.choice(len(p), p=p))

        def uniform_below(self, a):
            return bool(self.generator.random() < a)

    exact, runs = law(program), 20_000
    counts = {}
    for _ in range(runs):
        outcome = program(Sampled())
        counts[outcome] = counts.get(outcome, 0) + 1 / runs
    assert sum(exact.values()) == pytest.approx(1, abs=1e-15)
    assert law_distance(exact, counts) < 0.02


def test_distance():
    assert law_distance({"a": 0.5, "b": 0.5}, {"a": 0.5, "c": 0.5}) == 0.5
    assert law_distance({}, {}) == 0


def test_bad_weights_and_endless_programs_are_named():
    with pytest.raises(ValueError, match="sum to 1"):
        law(lambda choose: choose.categorical([0.5, 0.6]))
    with pytest.raises(ValueError, match=">= 0"):
        law(lambda choose: choose.categorical([float("nan"), 1]))
    with pytest.raises(RuntimeError, match="100 runs"):
        law(lambda choose: [choose.categorical([0.5, 0.5]) for _ in range(20)] and 0, max_runs=100)
