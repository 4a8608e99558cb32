from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from specdec import plots
from specdec.colours import COLOURS, TINTS
from specdec.decoding import Round
from specdec.roofline import Machine
from specdec.theory import optimal_k


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def heights(ax):
    return np.array([[bar.get_height() for bar in group] for group in ax.containers])


def test_rejection_step_stacks_p_and_q():
    p, q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    ax = plots.rejection_step(p, q)
    accepted, recovered, rejected = heights(ax)
    np.testing.assert_allclose(accepted + recovered, p)
    np.testing.assert_allclose(accepted + rejected, q)


def test_every_role_has_one_word_and_one_colour():
    roles = ("drafted", "accepted", "rejected", "recovered", "bonus", "plain", "dropped")
    assert set(COLOURS) == set(TINTS) == {"p", "q", *roles}
    for colours in (COLOURS, TINTS):  # q's colour is that of the tokens drafted from it
        assert colours["q"] == colours["drafted"]
        assert len(set(colours.values())) == len(colours) - 1

    stacked = plots.rejection_step([0.5, 0.5], [0.2, 0.8])
    found = {group.get_label(): group[0] for group in stacked.containers}
    assert list(found) == [text.get_text() for text in stacked.get_legend().get_texts()] == ["accepted", "recovered", "rejected"]
    for role in ("accepted", "recovered"):
        assert to_hex(found[role].get_facecolor()).upper() == COLOURS[role]
    assert to_hex(found["rejected"].get_edgecolor()).upper() == COLOURS["rejected"]

    bars = plots.distributions({"q": [0.2, 0.8], "mixed": [0.5, 0.5], "p": [0.5, 0.5]}).containers
    assert [to_hex(bars[i][0].get_facecolor()).upper() for i in (0, 2)] == [COLOURS["q"], COLOURS["p"]]

    rounds = [Round([0, 1], 1, 3, "recovered", 1.0), Round([2, 3], 1, 1, "bonus", 1.0), Round([4], 0, 0, "plain", 1.0)]
    html = plots.rounds_html(rounds, str)
    slots = plots.cache_slots({"": [(role, "") for role in roles]})
    for bar, role in zip(slots.containers, roles):
        assert to_hex(bar[0].get_facecolor()).upper() == TINTS[role]
        shown = f"background:{TINTS[role]}" in html
        assert shown == (role in {"accepted", "recovered", "bonus", "plain"}), "the legend names what is on the page, and nothing else"


def test_distributions_shows_every_bar_and_name():
    ax = plots.distributions({"p": [0.7, 0.3], "q": [0.4, 0.6]}, labels=["a", "b"])
    np.testing.assert_allclose(heights(ax), [[0.7, 0.3], [0.4, 0.6]])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["p", "q"]


def test_branches_say_what_happened_and_how_probable_it_was():
    stories = {("drafted a",): Fraction(1, 4), ("drafted b", "accepted"): Fraction(1, 4), ("drafted b", "rejected"): Fraction(1, 2)}
    ax = plots.branches(stories)
    told = [text.get_text() for text in ax.texts]
    assert sorted(told) == sorted(
        ["1/4", "1/4", "1/2", "1/4", "3/4", "1/3", "2/3", "start", "drafted a", "drafted b", "accepted", "rejected"]
    ), "the leaves, the branches given their parents, and the steps"
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert places["drafted b"] == (1, 1.5)
    assert places["start"] == (0, 1)
    grounds = {text.get_text(): text.get_bbox_patch() for text in ax.texts if text.get_bbox_patch()}
    assert to_hex(grounds["rejected"].get_facecolor()).upper() == TINTS["rejected"]


def test_curves_are_the_theory():
    ax = plots.tokens_per_forward([0.5, 1.0], k_max=4)
    assert ax.lines[1].get_ydata() == pytest.approx([1, 2, 3, 4, 5])
    ax = plots.speedup_curves([0.8], c=0.1, k_max=12)
    ring = next(line for line in ax.lines if line.get_markersize() > 10)
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == optimal_k(0.8, 0.1)


def test_rounds_html_colours_each_token_and_escapes_the_text():
    rounds = [Round([0, 1], accepted=1, drafted=3, last="recovered", seconds=1.0), Round([2], 0, 0, "plain", 1.0)]
    html = plots.rounds_html(rounds, lambda ids: ["<a>", "b", "c\n"][ids[0]])
    assert "&lt;a&gt;" in html
    assert "<a>" not in html
    order = [html.index(f'title="{kind}"') for kind in ("accepted", "recovered", "plain")]
    assert order == sorted(order)
    assert html.count("border-left") == len(rounds)


def test_cache_slots_draws_every_slot_where_it_lies():
    rows = {"before": [("cached", "a"), ("free", "")], "after": [("newest", "b"), ("dropped", "c")]}
    ax = plots.cache_slots(rows, first=7)
    centres = [bar.get_x() + bar.get_width() / 2 for group in ax.containers for bar in group]
    assert centres == pytest.approx([7, 8, 7, 8])
    assert [text.get_text() for text in ax.texts] == ["a", "", "b", "c"]
    assert [t.get_text() for t in ax.figure.legends[0].get_texts()] == ["cached", "free", "newest", "dropped"]


def test_table_html_escapes_and_sets_bold():
    html = plots.table_html(["a < b"], [["**3** & 4"]])
    assert "<th>a &lt; b</th>" in html
    assert "<td><strong>3</strong> &amp; 4</td>" in html


def test_the_roofline_is_the_lower_of_two_limits_and_keeps_its_corner():
    machine = Machine(bandwidth=2e9, rate=16e9)
    forwards = {"products": {1: (1.0, 1.5e9), 64: (60.0, 12e9)}, "whole": {1: (1.0, 1e9), 64: (60.0, 9e9)}}
    roof, *series, ridge = plots.roofline(machine, forwards).lines
    np.testing.assert_allclose(roof.get_xydata(), [(0.5, 1), (8, 16), (120, 16)])
    np.testing.assert_allclose([line.get_xydata() for line in series], [[(1, 1.5), (60, 12)], [(1, 1), (60, 9)]])
    assert list(ridge.get_xdata()) == [machine.ridge, machine.ridge]
    low = plt.gca().get_ylim()[0]
    assert 0 < low < 1, "the lowest point is on the page"
