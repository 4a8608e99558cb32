"""How the commands show a text and tables: who proposed which token, in colours or in signs; and no word cut off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec.colours import COLOURS
from specdec.results import Round, Stats

KINDS = ("accepted", "recovered", "bonus", "plain")
SIGNS = {"recovered": "~", "bonus": "+"}  # before a token; what is accepted stands in brackets


class Painter:
    """Prints a text piece by piece. A terminal shows by colours who proposed what; one without colours by signs; a file is given the text
    and nothing else.

    signs: whether there are any.
    counts: the tokens of each kind so far.
    """

    def __init__(self, console: Console):
        self.console = console
        self.signs = console.is_terminal and (console.no_color or console.color_system is None)
        self.counts: Counter[str] = Counter()
        self.inside = False  # brackets

    def count(self, round: Round) -> None:
        self.counts["accepted"] += round.accepted
        self.counts[round.last] += len(round.tokens) - round.accepted

    def print(self, text: str, kind: str) -> None:
        if self.signs:
            text = self._bracket(kind == "accepted") + SIGNS.get(kind, "") + text
        self.console.print(Text(text, style=COLOURS[kind]), end="", soft_wrap=True)

    def end(self) -> None:
        self.console.print(self._bracket(False) if self.signs else "")

    def _bracket(self, inside: bool) -> str:
        """What opens or closes a stretch of accepted tokens, where one begins or ends."""
        changed, self.inside = inside != self.inside, inside
        return "" if not changed else "[" if inside else "]"

    def label(self, kind: str) -> Text:
        """The kind's name as its tokens look."""
        signed = f"[{kind}]" if kind == "accepted" else SIGNS.get(kind, "") + kind
        return Text(signed if self.signs else kind, style=COLOURS[kind])


def new_table(header: Sequence[str], rows: Sequence[Sequence[str | Text]], title: str | None = None) -> Table:
    """The first column to the left, numbers to the right. What is too long for its column goes on in the next line."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for i, name in enumerate(header):
        table.add_column(name, justify="right" if i else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def fitting_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str, console: Console) -> Table:
    """`new_table`, on its side where it would be too wide for the console and fits better so: a column for each row."""
    table, turned = new_table(header, rows, title), list(zip(header, *rows, strict=True))
    on_side = new_table(turned[0], turned[1:], title)
    widths = [each.__rich_measure__(console, console.options.update(width=10_000)).maximum for each in (table, on_side)]
    return on_side if widths[1] < widths[0] and widths[0] > console.width else table


def comparison(runs: Mapping[str, tuple[Stats, Painter]]) -> Table:
    """A column for each run, "none" is plain decoding; the legend is in it."""
    plain = runs["none"][0].tokens_per_second if "none" in runs else None

    def row(label: str | Text, figure) -> list[str | Text]:
        return [label, *(figure(stats, painter) for stats, painter in runs.values())]

    painter = next(iter(runs.values()))[1]
    rows = [
        row("tokens", lambda stats, _: str(stats.emitted)),
        *(row(Text("  ") + painter.label(kind), lambda _, by, kind=kind: str(by.counts[kind])) for kind in KINDS),
        row("forwards", lambda stats, _: str(stats.forwards)),
        row("tokens per forward", lambda stats, _: f"{stats.tokens_per_forward:.2f}"),
        row("accepted of drafted", lambda stats, _: f"{stats.acceptance_rate:.0%}" if stats.drafted else "–"),
        row("tokens/s", lambda stats, _: f"{stats.tokens_per_second:.1f}"),
        row("speedup", lambda stats, _: f"{stats.tokens_per_second / plain:.2f}×" if plain else "–"),
    ]
    return new_table(["", *("plain" if name == "none" else name for name in runs)], rows)
