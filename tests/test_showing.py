"""Texts and tables on the terminal: colours, signs where there are none, the text alone in a file; nothing is cut off."""

import io

import pytest
from rich.console import Console

from specdec.results import Round, Stats
from specdec.showing import KINDS, Painter, comparison, fitting_table, new_table

PIECES = [(" one", "accepted"), (" two", "accepted"), (" three", "recovered"), (" four", "recovered"), (" five", "accepted"),
          (" six", "bonus"), (" seven", "plain"), (" eight", "accepted")]  # fmt: skip
TEXT = "".join(piece for piece, _ in PIECES)
SIGNED = "[ one two]~ three~ four[ five]+ six seven[ eight]"
ROUNDS = [Round([1, 2, 3], 2, 4, "recovered", 1.0), Round([4], 0, 4, "recovered", 1.0), Round([5, 6], 1, 1, "bonus", 1.0),
          Round([7], 0, 0, "plain", 1.0), Round([8], 1, 3, "accepted", 1.0)]  # fmt: skip


def console(width=80, **options):
    return Console(file=io.StringIO(), width=width, markup=False, highlight=False, **options)


def painted(made: Console) -> str:
    painter = Painter(made)
    for piece, kind in PIECES:
        painter.print(piece, kind)
    painter.end()
    return made.file.getvalue()


def told(rounds=ROUNDS, made=None):
    stats, painter = Stats(), Painter(made or console())
    for round in rounds:
        stats.add(round)
        painter.count(round)
    return stats, painter


@pytest.mark.parametrize("options", [{"color_system": None}, {"color_system": "truecolor", "no_color": True}])
def test_a_terminal_without_colours_has_signs(options):
    made = console(force_terminal=True, **options)
    assert painted(made) == SIGNED + "\n"
    assert [Painter(made).label(kind).plain for kind in KINDS] == ["[accepted]", "~recovered", "+bonus", "plain"]


def test_a_file_has_the_text_and_nothing_else():
    assert painted(console()) == TEXT + "\n"


def test_a_terminal_with_colours_needs_no_signs():
    made = console(force_terminal=True, color_system="truecolor")
    assert painted(made) != TEXT + "\n", "there must be colours"
    assert [Painter(made).label(kind).plain for kind in KINDS] == list(KINDS)
    assert len({str(Painter(made).label(kind).style) for kind in KINDS}) == 4


def test_every_token_is_counted_once_by_its_kind():
    stats, painter = told()
    assert dict(painter.counts) == {"accepted": 4, "recovered": 2, "bonus": 1, "plain": 1}
    assert sum(painter.counts.values()) == stats.emitted == 8


@pytest.mark.parametrize(("width", "name"), [(40, "medusa"), (80, "medusa"), (80, "draft-model+eagle-3+prompt-lookup")])
def test_a_comparison_cuts_nothing(width, name):
    made = console(width)
    made.print(comparison({name: told(), "none": told([Round([1], 0, 0, "plain", 0.5)] * 8)}))
    shown = made.file.getvalue()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    for heading in ("tokens", *KINDS, "forwards", "tokens per forward", "accepted of drafted", "tokens/s", "speedup", "plain"):
        assert heading in shown, "a heading must stand there whole"
    assert name in shown
    line = next(line for line in shown.splitlines() if line.split()[:1] == ["recovered"])
    assert line.split()[1:] == ["2", "0"]


HEADER = ["text", "entropy, nats", "largest p", *(f"{name} (random heads): Σ min(p, q); α" for name in ("eagle-1", "eagle-2", "eagle-3"))]
ROW = ["shakespeare, T = 1", "1.70", "0.53", "0.11; 0.03", "0.12; 0.04", "0.13; 0.05"]


@pytest.mark.parametrize(("width", "turned"), [(80, True), (250, False)])
def test_a_table_that_is_too_wide_lies_on_its_side(width, turned):
    made = console(width)
    made.print(fitting_table(HEADER, [ROW], "Limits", made))
    shown = made.file.getvalue()
    assert "…" not in shown
    lines = [line.split("  ") for line in shown.splitlines()]
    assert any(line[0].strip() == HEADER[-1] and line[-1].strip() == ROW[-1] for line in lines) == turned
    assert all(word in shown for word in (*HEADER, *ROW))


def test_what_is_too_long_for_its_column_goes_on_in_the_next_line():
    made, name = console(20), "draft-model+eagle-3+prompt-lookup"
    made.print(new_table(["a method by its name"], [[name]]))
    assert name in "".join(made.file.getvalue().split())
