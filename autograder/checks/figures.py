"""The pictures of the checks. Each is drawn from plain data, so that a check needs no matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specdec.colours import COLOURS, INK, TINTS

RIGHT, YOURS, THIRD = "#8a94a6", "#7b3fe4", "#e08e0b"  # grey, violet, amber: apart for every kind of colour vision
MOST_BARS = 16


def draw(kind: str, **data: Any) -> Figure:
    """The figure of one check."""
    figure = Figure(figsize=(6.4, 2.7), layout="constrained")
    axes = figure.add_subplot()
    _KINDS[kind](axes, **data)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _acceptance(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    axes.plot([0, 1, 1.5], [0, 1, 1], color=RIGHT, label="min(1, p/q)")
    axes.plot(*zip(*points), "o", color=YOURS, label="yours")
    axes.set(xlabel="p(x) / q(x)", ylabel="share accepted", ylim=(-0.05, 1.1), title="How often you accept")
    axes.legend(frameon=False)


def _residual(axes: Axes, p: Sequence[float], q: Sequence[float], right: Sequence[float], student: Sequence[float]) -> None:
    _bars(axes, [str(i) for i in range(len(p))], {"p": (p, COLOURS["p"]), "q": (q, COLOURS["q"]), "your residual": (student, YOURS)})
    axes.plot([x + 0.8 / 3 for x in range(len(p))], right, "k_", markersize=26, label="right residual")
    axes.set(xlabel="token", ylabel="probability", title="Target, draft and residual")
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))


def _law(axes: Axes, right: dict, student: dict) -> None:
    mass = {outcome: max(right.get(outcome, 0), student.get(outcome, 0)) for outcome in right.keys() | student.keys()}
    shown = sorted(sorted(mass, key=lambda outcome: -mass[outcome])[:MOST_BARS])
    labels = [" ".join(map(str, outcome)) for outcome in shown]
    series = {"right": ([right.get(o, 0) for o in shown], RIGHT), "yours": ([student.get(o, 0) for o in shown], YOURS)}
    _bars(axes, labels, series)
    axes.tick_params(axis="x", rotation=60)
    axes.set(xlabel="emitted tokens", ylabel="probability", title="Law of one step")
    axes.legend(frameon=False)


def _histogram(axes: Axes, observed: Sequence[float], expected: Sequence[float], samples: int) -> None:
    labels = [str(i) for i in range(len(observed))]
    _bars(axes, labels, {"target, exact": (expected, RIGHT), f"yours, {samples:,} tokens": (observed, YOURS)})
    axes.set(xlabel="token", ylabel="share", title="Emitted tokens")
    axes.legend(frameon=False)


def _curves(axes: Axes, curves: dict[str, Sequence[float]], title: str, ylabel: str, marks: Sequence[tuple] = ()) -> None:
    """One line per label over K = 0, 1, 2, …; marks are (K, value, text)."""
    for shade, (label, values) in enumerate(curves.items()):
        axes.plot(range(len(values)), values, "o-", markersize=3, color=_shade(shade, len(curves)), label=label)
    for k, value, text in marks:
        axes.annotate(text, (k, value), textcoords="offset points", xytext=(4, 4), fontsize="small")
        axes.plot(k, value, "k*")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="draft length K", ylabel=ylabel, title=title)
    axes.legend(frameon=False, fontsize="small", ncols=1)


def _distributions(axes: Axes, series: dict[str, Sequence[float]], title: str) -> None:
    colours = iter((YOURS, THIRD, RIGHT))
    series = {name: (values, COLOURS.get(name) or next(colours)) for name, values in series.items()}
    _bars(axes, [str(i) for i in range(len(next(iter(series.values()))[0]))], series)
    axes.set(xlabel="token", ylabel="probability", title=title)
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))


def _several(axes: Axes, lines: dict[str, tuple[Sequence[float], Sequence[float]]], title: str, xlabel: str, ylabel: str) -> None:
    for shade, (label, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, color=_shade(shade, len(lines)), label=label)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.legend(frameon=False, fontsize="small")


def _intervals(
    axes: Axes, points: Sequence[tuple[float, float, float]], title: str, xlabel: str, ylabel: str,
    truth: float | None = None, labels: Sequence[str] = (),
) -> None:  # fmt: skip
    """Points (x, value, half width); with labels x counts them, without x is on a logarithmic scale."""
    x, value, error = zip(*points)
    axes.errorbar(x, value, yerr=error, fmt="o", capsize=4, color=YOURS)
    if truth is not None:
        axes.axhline(truth, color=RIGHT, label=f"α = {truth}")
        axes.legend(frameon=False)
    if labels:
        axes.set_xticks(x, labels)
    else:
        axes.set_xscale("log")
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)


def _slots(axes: Axes, rows: dict[str, Sequence[str]], title: str) -> None:
    """Rows of cache slots. A slot is "cached", "free", or the role of the token in it; dropped slots are filled with NaN by the check."""
    colours = {"cached": "#f7f7f9", **TINTS, "free": "#ffffff"}
    for y, slots in enumerate(rows.values()):
        for x, kind in enumerate(slots):
            hatch = "////" if kind == "dropped" else None
            axes.barh(y, 0.92, left=x - 0.46, height=0.7, color=colours[kind], edgecolor="#55555555", hatch=hatch)
            if kind == "dropped":
                axes.text(x, y, "NaN", ha="center", va="center", fontsize=6, color=INK)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set(xlabel="slot", title=title)
    axes.set_xticks(range(max(map(len, rows.values()))))
    shown = {kind for slots in rows.values() for kind in slots} - {"free"}
    handles = [axes.barh(0, 0, color=colour, label=kind) for kind, colour in colours.items() if kind in shown]
    axes.legend(handles=handles, frameon=False, fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.28))


def _beside(axes: Axes, labels: Sequence[str], right: Sequence[float], student: Sequence[float], title: str, ylabel: str,
            xlabel: str, log: bool = False) -> None:  # fmt: skip
    """Pairs of bars."""
    _bars(axes, labels, {"right": (right, RIGHT), "yours": (student, YOURS)})
    if log and all(value > 0 for value in [*right, *student]):
        axes.set_yscale("log")
    axes.tick_params(axis="x", labelsize="small")
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.legend(frameon=False, fontsize="small")


def _lines(axes: Axes, x: Sequence[float], right: Sequence[float], student: Sequence[float], title: str, xlabel: str, ylabel: str) -> None:
    """The right line under the student's. Both axes are logarithmic, so that a wrong factor is a line beside the right one."""
    axes.plot(x, right, "o-", color=RIGHT, linewidth=4, alpha=0.6, label="right")
    axes.plot(x, student, "o-", color=YOURS, markersize=3, label="yours")
    axes.set_xscale("log", base=2)
    if all(value > 0 for value in [*right, *student]):
        axes.set_yscale("log")
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.legend(frameon=False, fontsize="small")


def _bars(axes: Axes, labels: Sequence[str], series: dict[str, tuple[Sequence[float], str]]) -> None:
    width = 0.8 / len(series)
    for i, (name, (values, colour)) in enumerate(series.items()):
        places = [x + (i - (len(series) - 1) / 2) * width for x in range(len(labels))]
        axes.bar(places, values, width * 0.92, color=colour, label=name)
    axes.set_xticks(range(len(labels)), labels)


def _shade(i: int, n: int) -> tuple[float, float, float]:
    """From pale to full violet."""
    share = 0.25 + 0.75 * i / max(1, n - 1)
    full = tuple(int(YOURS[j : j + 2], 16) / 255 for j in (1, 3, 5))
    return tuple(1 - share * (1 - c) for c in full)


_KINDS = {
    "acceptance": _acceptance, "residual": _residual, "law": _law, "histogram": _histogram, "curves": _curves, "slots": _slots,
    "distributions": _distributions, "several": _several, "intervals": _intervals, "beside": _beside, "lines": _lines,
}  # fmt: skip
