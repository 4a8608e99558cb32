"""The figures of the book, in one style. Every function draws what it is given and returns the figure's axes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from specdec.colours import BLUE, COLOURS, GREEN, GREY, INK, ORANGE, PURPLE, RED, SKY, TINTS
from specdec.decoding import Round
from specdec.roofline import Machine
from specdec.theory import expected_tokens, optimal_k, speedup

# For what has no role in a round, such as methods and measured times.
MANY = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, "#F0E442", GREY, "#000000")
BOX = {"boxstyle": "round,pad=0.3", "fc": "white", "ec": GREY, "lw": 0.7}


def new_axes(width: float = 7, height: float = 3.6, **subplots) -> Axes:
    """Axes in the book's style: no box, a light grid behind the data."""
    _, axes = plt.subplots(figsize=(width, height), layout="constrained", **subplots)
    for ax in np.atleast_1d(axes).flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", alpha=0.25)
        ax.set_axisbelow(True)
    return axes


def distributions(named: Mapping[str, Sequence[float]], labels: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Bars of several distributions over one small vocabulary, side by side. "p", "q" and the roles have their own colours."""
    ax = ax or new_axes()
    others = iter((GREY, "#000000", "#F0E442"))
    colours = {name: COLOURS.get(name) or next(others) for name in named}
    width = 0.8 / len(named)
    for i, (name, values) in enumerate(named.items()):
        x = np.arange(len(values)) + (i - (len(named) - 1) / 2) * width
        ax.bar(x, np.asarray(values, dtype=float), width, label=name, color=colours[name])
    size = len(next(iter(named.values())))
    ax.set_xticks(range(size), labels or [str(i) for i in range(size)])
    ax.set(xlabel="token", ylabel="probability")
    ax.legend(frameon=False)
    return ax


def rejection_step(p: Sequence[float], q: Sequence[float], labels: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Where the mass goes in one accept-or-reject step: min(p, q) is accepted, (p - q)₊ recovered, (q - p)₊ rejected."""
    ax = ax or new_axes()
    p, q = np.asarray(p, dtype=float), np.asarray(q, dtype=float)
    x, low = np.arange(len(p)), np.minimum(p, q)
    ax.bar(x, low, color=COLOURS["accepted"], label="accepted")
    ax.bar(x, p - low, bottom=low, color=COLOURS["recovered"], label="recovered")
    edge = np.where(q > p, 1.0, 0.0)  # a bar without height would still draw its edge
    hatched = {"facecolor": "none", "edgecolor": COLOURS["rejected"], "hatch": "///", "linewidth": edge}
    ax.bar(x, q - low, bottom=low, label="rejected", **hatched)
    ax.set_xticks(x, labels or [str(i) for i in x])
    ax.set(xlabel="token", ylabel="probability")
    ax.legend(frameon=False)
    return ax


def branches(stories: Mapping[tuple[str, ...], object], ax: Axes | None = None) -> Axes:
    """Everything that can happen in a small program, from left to right: one path for each story, and its probability at the end.

    stories: what happened, step by step → probability, as `law` returns them; stories with the same beginning follow each other.
    Beside a branch stands its probability, given that its parent was reached. A step whose first word is a role has its colour.
    """
    ax = ax or new_axes(height=0.6 + 0.55 * len(stories))
    rows, mass = defaultdict(list), defaultdict(int)
    for y, (story, probability) in enumerate(stories.items()):
        for steps in range(len(story) + 1):
            rows[story[:steps]].append(y)
            mass[story[:steps]] += probability
        ax.text(len(story) + 0.5, y, str(probability), va="center", fontweight="bold")
    for path in filter(None, rows):
        x, y, before = len(path), np.mean(rows[path]), path[:-1]
        ax.plot([x - 1, x], [np.mean(rows[before]), y], color=GREY, lw=1)
        middle = (np.mean(rows[before]) + y) / 2
        ax.text(x - 0.5, middle, str(mass[path] / mass[before]), ha="center", va="center", fontsize=8, bbox=BOX | {"ec": "none"})
    for path in rows:
        tint = TINTS.get(path[-1].split()[0], "white") if path else "white"
        ax.text(len(path), np.mean(rows[path]), path[-1] if path else "start", ha="center", va="center", bbox=BOX | {"fc": tint})
    ax.set(xlim=(-0.4, max(map(len, stories)) + 0.9), ylim=(len(stories) - 0.4, -0.6))
    ax.set_axis_off()
    return ax


def tokens_per_forward(alphas: Sequence[float], k_max: int = 16, ax: Axes | None = None) -> Axes:
    """τ against K for several acceptance rates: it only grows."""
    ax = ax or new_axes()
    ks = range(k_max + 1)
    for alpha, shade in zip(alphas, plt.colormaps["viridis"](np.linspace(0.1, 0.85, len(alphas)))):
        ax.plot(ks, [expected_tokens(alpha, k) for k in ks], "o-", ms=3, color=shade, label=f"α = {alpha:g}")
    ax.set(xlabel="K, drafted tokens a round", ylabel="τ, tokens per target forward", xticks=ks[:: max(1, k_max // 8)])
    ax.legend(frameon=False)
    return ax


def speedup_curves(
    alphas: Sequence[float],
    c: float,
    k_max: int = 16,
    verify_cost: Callable[[int], float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Speedup against K at a draft cost c, a ring around each optimum; below the dashed line speculation loses."""
    ax = ax or new_axes()
    ks = range(k_max + 1)
    for alpha, shade in zip(alphas, plt.colormaps["viridis"](np.linspace(0.1, 0.85, len(alphas)))):
        ax.plot(ks, [speedup(alpha, k, c, verify_cost) for k in ks], "o-", ms=3, color=shade, label=f"α = {alpha:g}")
        best, gain = optimal_k(alpha, c, k_max, verify_cost)
        ax.plot(best, gain, "o", ms=11, mfc="none", mec=INK)
    ax.axhline(1, color=GREY, ls="--", lw=1)
    ax.set(xlabel="K, drafted tokens a round", ylabel="speedup", xticks=ks[:: max(1, k_max // 8)], title=f"c = {c:.3g}")
    ax.legend(frameon=False)
    return ax


def roofline(machine: Machine, forwards: Mapping[str, Mapping[int, tuple[float, float]]], ax: Axes | None = None) -> Axes:
    """What a machine allows at each intensity (operations for each byte), and what forwards reached.

    forwards: what was timed → tokens of the forward → (its intensity, its operations a second).
    """
    ax = ax or new_axes(height=4)
    points = [point for series in forwards.values() for point in series.values()]
    ends = [0.5, machine.ridge, 2 * max(machine.ridge, *(x for x, _ in points))]
    ax.plot(ends, [min(x * machine.bandwidth, machine.rate) / 1e9 for x in ends], color=INK, label="roofline: min(I · M, R)")
    for (name, series), colour in zip(forwards.items(), MANY):
        ax.plot(*zip(*((x, rate / 1e9) for x, rate in series.values())), "o-", ms=4, lw=0.8, color=colour, label=name)
    for n in (min(series), max(series)):  # of the last one
        ax.annotate(f"n = {n}", (series[n][0], series[n][1] / 1e9), textcoords="offset points", xytext=(6, -12))
    ax.axvline(machine.ridge, color=GREY, ls=":", lw=1)
    ax.annotate(f"ridge point {machine.ridge:.1f}", (machine.ridge, machine.rate / 1e9), textcoords="offset points", xytext=(5, 6))
    ax.set(xscale="log", yscale="log", xlabel="I, operations for each byte", ylabel="billion operations/s")
    ax.set_ylim(bottom=0.6 * min(rate for _, rate in points) / 1e9)
    ax.legend(frameon=False, loc="lower right")
    return ax


def cache_slots(rows: Mapping[str, Sequence[tuple[str, str]]], first: int = 0, ax: Axes | None = None) -> Axes:
    """Slots of a KV cache over time, one row per moment. A slot is (kind, text); `first` is the number of the leftmost one.

    Kinds: "cached" (from earlier forwards), "newest" (the token that no forward had seen yet), "free", and the roles of a token:
    "drafted", "accepted", "rejected", "recovered", "bonus", "plain", "dropped".
    """
    ax = ax or new_axes(height=0.8 + 0.38 * len(rows))
    styles = {kind: {"facecolor": tint} for kind, tint in TINTS.items()}
    styles["dropped"] |= {"hatch": "////", "edgecolor": COLOURS["dropped"]}
    styles["cached"] = {"facecolor": "#F7F7F9"}
    styles["newest"] = {"facecolor": "white", "edgecolor": INK, "linewidth": 1.8}
    styles["free"] = {"facecolor": "white", "linestyle": ":"}
    shown = {}
    for y, slots in enumerate(rows.values()):
        for x, (kind, text) in enumerate(slots, start=first):
            style = {"edgecolor": GREY, "linewidth": 0.7, **styles[kind]}
            shown[kind] = ax.barh(y, 0.94, left=x - 0.47, height=0.78, **style)
            ax.text(x, y, text, ha="center", va="center", fontsize=9)
    widest = max(map(len, rows.values()))
    ax.set_yticks(range(len(rows)), rows)
    ax.set(xlabel="slot", xlim=(first - 0.6, first + widest - 0.4), ylim=(len(rows) - 0.5, -0.5))
    ax.set_xticks(range(first, first + widest, 1 if widest <= 20 else 5))
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    ax.figure.legend(shown.values(), shown, loc="outside upper center", ncols=min(6, len(shown)), frameon=False, columnspacing=1.2)
    return ax


def rounds_html(rounds: Sequence[Round], decode: Callable[[list[int]], str]) -> str:
    """The text of a generation with each token on the colour of what it was, a bar before each round."""
    spans, kinds = [], set()
    for round in rounds:
        for i, token in enumerate(round.tokens):
            kind = "accepted" if i < round.accepted else round.last
            kinds.add(kind)
            edge = f";border-left:2px solid {INK}" if i == 0 else ""
            text = escape(decode([token])).replace("\n", "⏎\n") or "∅"
            spans.append(f'<span title="{kind}" style="{_ground(kind)}{edge}">{text}</span>')
    legend = " ".join(f'<span style="{_ground(kind)};padding:0 .4em">{kind}</span>' for kind in TINTS if kind in kinds)
    box = "white-space:pre-wrap;background:none;border:none;padding:0;margin:0 0 .5em;line-height:1.7"
    return f'<pre style="{box}">{"".join(spans)}</pre><small>{legend} a bar begins each target forward</small>'


def _ground(kind: str) -> str:
    return f"background:{TINTS[kind]};color:{INK}"


def table_html(header: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table in the style of the book. Cells are shown as text; a cell in **asterisks** is set in bold."""

    def line(cells: Sequence[object], tag: str) -> str:
        shown = (re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(str(cell))) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in shown) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f'<table class="table dataframe"><thead>{line(header, "th")}</thead><tbody>{body}</tbody></table>'


def speedup_bars(ratios: Mapping[str, Mapping[str, tuple[float, float, float]]], ax: Axes | None = None) -> Axes:
    """Bars of the speedup of each method on each workload, with whiskers from the lower to the upper quartile.

    ratios: method → workload → (lower quartile, median, upper quartile). Below the dashed line speculation loses.
    """
    ax = ax or new_axes(width=11)
    workloads = list(dict.fromkeys(name for own in ratios.values() for name in own))
    width = 0.85 / len(ratios)
    for i, (method, own) in enumerate(ratios.items()):
        low, middle, high = np.array(list(own.values())).T
        x = np.array([workloads.index(name) for name in own]) + (i - (len(ratios) - 1) / 2) * width
        whiskers = {"ecolor": "#444444", "elinewidth": 0.8}
        hatch = "///" if i >= len(MANY) else None
        colour = MANY[i % len(MANY)]
        ax.bar(x, middle, width, yerr=[middle - low, high - middle], label=method, color=colour, hatch=hatch, error_kw=whiskers)
    ax.axhline(1, color=GREY, ls="--", lw=1)
    ax.set_xticks(range(len(workloads)), workloads)
    ax.set(ylabel="speed against plain decoding")
    return ax


def predicted_and_measured(points: Mapping[str, Sequence[tuple[float, float]]], ax: Axes | None = None) -> Axes:
    """The speedup that the formula predicts against the one that was measured; on the dashed line they are equal."""
    ax = ax or new_axes(width=4)
    for i, (method, pairs) in enumerate(points.items()):
        marker = "s" if i >= len(MANY) else "o"
        ax.plot(*zip(*pairs, strict=True), marker, ms=5, color=MANY[i % len(MANY)], label=method)
    values = [value for pairs in points.values() for pair in pairs for value in pair]
    ends = [min(values) * 0.95, max(values) * 1.05]
    ax.plot(ends, ends, color=GREY, ls="--", lw=1)
    ax.set(xlabel="predicted speedup", ylabel="measured speedup")
    return ax
