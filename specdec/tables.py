"""The benchmark's tables: from what `specdec bench` stored to rows of text, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from specdec.measure import PLAIN, quartiles

Grid = tuple[list[str], list[list[str]]]  # the header, and the rows


def temperatures(results: dict) -> list[float]:
    return list(dict.fromkeys(part["temperature"] for part in results["parts"]))


def parts_at(results: dict, temperature: float) -> list[dict]:
    return [part for part in results["parts"] if part["temperature"] == temperature]


def overview(results: dict, temperature: float) -> Grid:
    """A row for each method: speedup with its quartiles, and τ, for each workload, and the speedups' geometric mean. The last row takes
    of our own methods the fastest one on each workload."""
    parts = parts_at(results, temperature)
    header = ["method", *(part["workload"] for part in parts), "geometric mean"]
    rows = [
        [label(name, row), *(_speed(part["rows"][name]) for part in parts), _mean(parts, name)]
        for name, row in parts[0]["rows"].items()
        if name != PLAIN
    ]
    return header, [*rows, _fastest(parts)]


def headline(results: dict) -> Grid:
    """For each temperature the pace of plain decoding, and as speedups over it: the fastest of our methods on every workload, the trained
    method that is fastest on the whole, and the other programs."""
    grids = []
    for t in temperatures(results):
        parts = parts_at(results, t)
        rows, methods = parts[0]["rows"], results["about"]["methods"]
        trained = [name for name in methods if methods[name]["weights"] and "+" not in name]
        pace = [quartiles(part["rows"][PLAIN]["rates"])[1] for part in parts]
        lines = [["plain decoding", *(f"{rate:.1f} tokens/s" for rate in pace), f"{geometric_mean(pace):.1f} tokens/s"], _fastest(parts)]
        if trained:
            best = max(trained, key=lambda name: geometric_mean(_medians(parts, name)))
            lines.append([f"best trained method: {best}", *(_speed(part["rows"][best], False) for part in parts), _mean(parts, best)])
        for name in rows:
            if rows[name]["peer"]:
                lines.append([name, *(f"{median:.2f}×" for median in _medians(parts, name)), _mean(parts, name)])
        grids += [[f"T = {t:g}: {line[0]}", *line[1:]] for line in lines]
    return ["", *(part["workload"] for part in parts), "geometric mean"], grids


def losers(results: dict, temperature: float) -> str:
    """A sentence: which of our methods are slower than plain decoding, and where."""
    parts, where = parts_at(results, temperature), {}
    for name in _own(parts):
        places = [part["workload"] for part, median in zip(parts, _medians(parts, name), strict=True) if median < 1]
        if places:
            where.setdefault("everywhere" if len(places) == len(parts) else f"on {', '.join(places)}", []).append(name)
    told = [f"{', '.join(names)} {place}" for place, names in where.items()]
    return f"Slower than plain decoding: {'; '.join(told) or 'none'}."


def _own(parts: Sequence[dict]) -> list[str]:
    return [name for name, row in parts[0]["rows"].items() if name != PLAIN and not row["peer"]]


def _medians(parts: Sequence[dict], name: str) -> list[float]:
    return [quartiles(part["rows"][name]["ratios"])[1] for part in parts]


def _mean(parts: Sequence[dict], name: str) -> str:
    return f"{geometric_mean(_medians(parts, name)):.2f}×"


def _fastest(parts: Sequence[dict]) -> list[str]:
    medians = {name: _medians(parts, name) for name in _own(parts)}
    best = [max(medians, key=lambda name, i=i: medians[name][i]) for i in range(len(parts))]
    tops = [medians[name][i] for i, name in enumerate(best)]
    chosen = [f"{top:.2f}× {name}" for top, name in zip(tops, best, strict=True)]
    return ["best of ours", *chosen, f"{geometric_mean(tops):.2f}×"]


def label(name: str, row: dict) -> str:
    return f"{name} (random heads)" if row["random"] else name


def _speed(row: dict, spread: bool = True) -> str:
    low, middle, high = quartiles(row["ratios"])
    return f"{middle:.2f}×{f' ({low:.2f}–{high:.2f})' if spread else ''}, τ {row['tau']:.2f}"


def details(results: dict, temperature: float) -> Grid:
    """A row for each workload and method: everything that was measured, and what the formula predicts."""
    header = [
        "workload", "method", "τ", "α by depth", "tokens/s", "speedup", "predicted", "whole texts", "c", "nodes", "r",
        "texts that part",
    ]  # fmt: skip
    rows = []
    for part in parts_at(results, temperature):
        prompts = f" of {results['about']['prompts']}"
        for name, row in part["rows"].items():
            cost = row["cost"]
            rows.append([
                part["workload"],
                "plain decoding" if name == PLAIN else label(name, row),
                f"{row['tau']:.2f}",
                " ".join(f"{alpha:.2f}"[1:] if alpha < 0.995 else "1.0" for alpha in row["alphas"]) or "–",
                f"{quartiles(row['rates'])[1]:.1f}",
                f"{quartiles(row['ratios'])[1]:.2f}×",
                "–" if row["predicted"] is None else f"{row['predicted']:.2f}×",
                f"{quartiles(row['whole'])[1]:.2f}×",
                *(("–", "–", "–") if cost is None else (f"{cost['draft']:.3f}", f"{cost['nodes']:.1f}", f"{cost['verify']:.2f}")),
                "–" if row["parted"] is None or name == PLAIN else f"{row['parted']}{prompts}",
            ])  # fmt: skip
    return header, rows


def verify_table(results: dict) -> Grid:
    """The time of a forward of each number of tokens, over that of one token, r; and the part of it that its products alone take."""
    costs = results["verify"]
    one = costs["1"]["seconds"]
    rows = [[T, f"{1000 * c['seconds']:.1f}", f"{c['seconds'] / one:.2f}", f"{c['products'] / c['seconds']:.0%}"] for T, c in costs.items()]
    return ["tokens", "ms", "r", "products alone"], rows


def limits_table(results: dict) -> Grid:
    """What the target's own sampled texts allow, where they were looked at; no rows where none were."""
    parts = [part for part in results["parts"] if part["limits"]]
    drafts = list(dict.fromkeys(name for part in parts for name in part["limits"]["overlaps"]))
    rows = []
    for part in parts:
        found = part["limits"]
        alphas = {name: part["rows"][name]["alphas"][:1] for name in drafts}
        overlaps = [f"{found['overlaps'][name]:.2f}; " + (f"{alphas[name][0]:.2f}" if alphas[name] else "–") for name in drafts]
        text = f"{part['workload']}, T = {part['temperature']:g}"
        rows.append([text, f"{found['entropy']:.2f}", f"{found['largest']:.2f}", *overlaps])
    drawn = [f"{label(name, parts[0]['rows'][name])}: Σ min(p, q); α" for name in drafts]
    return ["text", "entropy, nats", "largest p", *drawn], rows


def heading(results: dict) -> str:
    """Machine and method, in a few sentences."""
    about = results["about"]
    trial = "A trial run, too short to say anything. " if about["quick"] else ""
    notes = "".join(f" {line}" for line in about["notes"])
    return (
        f"{trial}{about['model']} in {about['dtype']} ({about['activations']} activations) on {about['machine']}; threads: "
        f"{about['threads']}, PyTorch {about['torch']}. Prompts of each workload: {about['prompts']}, new tokens of each text: at most "
        f"{about['tokens']}. All methods take turns in one process; the figures are the median of {about['repeats']} repeats (and the "
        "quartiles). Speeds are of decoding, without the prompt's forward and the round after it; “whole texts” has both in it on both "
        f"sides.{notes}"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def markdown(results: dict) -> str:
    """All tables, under headings of the second and third level."""
    parts = ["## Every method beside plain decoding\n", heading(results) + "\n"]
    for t in temperatures(results):
        parts += [f"### Speedup and τ at T = {t:g}\n", table(*overview(results, t)), losers(results, t) + "\n"]
    for t in temperatures(results):
        parts += [f"### Measured and predicted at T = {t:g}\n", PREDICTION, table(*details(results, t))]
    parts += ["### What a forward of T tokens costs behind 256\n", table(*verify_table(results))]
    header, rows = limits_table(results)
    if rows:
        parts += ["### What the target's own text allows\n", LIMITS, table(header, rows)]
    return "\n".join(parts)


PREDICTION = (
    "The prediction is τ / (c + r): c is the time of drafting in a round, r that of the target's forward over the tree, both in plain "
    "steps. α at depth d is the share of the rounds that proposed d tokens and accepted d - 1 in which the d-th was accepted too.\n"
)
LIMITS = (
    "Means over the positions of texts that plain decoding drew. Σ min(p, q) is the chance that one token drawn from the draft is "
    "accepted; a tree of several candidates can do better. Beside it the α at depth 1 that the rounds had.\n"
)
