"""Writes the pages of benchmarks/results/ from the figures beside them, and the headline of the project's README.md.

    python -m benchmarks.tables
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from benchmarks import grading_report
from benchmarks.training import markdown as reached
from specdec.tables import headline, markdown, table

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- headline: python -m benchmarks.tables -->\n", "<!-- end of the headline -->"


def main() -> None:
    for path, text in pages().items():
        path.write_text(text)


def pages() -> dict[Path, str]:
    """Every page that is made from the stored figures, and what it says."""
    results = json.loads((RESULTS / "bench.json").read_text())
    return {
        README: with_headline(README.read_text(), results),
        RESULTS / "README.md": page(results),
        RESULTS / "bench.md": markdown(results),
        RESULTS / "grading.md": grading_report.markdown(json.loads((RESULTS / "grading.json").read_text())),
    }


def page(results: dict) -> str:
    runs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("bit_identity*.json"))]
    overhead = json.loads((RESULTS / "overhead.json").read_text())
    parts = ["# Figures\n\nEvery number here was written by a command of `benchmarks/`; `python -m benchmarks.tables` makes this page.\n"]
    parts += [markdown(results), "![Speedup of every method on each workload, and predicted against measured speedup](bench.png)\n"]
    parts += [reached(json.loads((RESULTS / "training.json").read_text()))]
    parts += [identity(group) for group in grouped(runs)]
    parts += [widths(json.loads((RESULTS / "fixed_shape.json").read_text())), shares(overhead)]
    return "\n".join(parts)


def with_headline(text: str, results: dict) -> str:
    """The README with the headline table of what `specdec bench` stored between its two marks. Raises ValueError if one is missing."""
    if BEGIN not in text or END not in text:
        raise ValueError(f"README.md has no {BEGIN.strip()} … {END}")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return before + BEGIN + table(*headline(results)) + END + after


def grouped(runs: list[dict]) -> list[list[dict]]:
    """Runs that differ in their prompts only: several processes shared the work."""
    groups = defaultdict(list)
    for run in runs:
        groups[json.dumps({key: run[key] for key in ("mode", "oracle", "dtype", "activations", "device")})].append(run)
    return list(groups.values())


def identity(group: list[dict]) -> str:
    """Sums over the runs of a group, one line a drafter."""
    about, rows = group[0], defaultdict(list)
    for run in group:
        for row in run["rows"]:
            rows[row["drafter"]].append(row)
    prompts = sum(len(range(*run["prompts"])) for run in group)
    oracle = " Beside each drafter a chain that knows the text, so that tokens come from every row." if about["oracle"] else ""
    lines = [
        f"## Greedy texts, {about['mode']}, {about['dtype']} weights, {about['activations'].removeprefix('torch.')} activations\n",
        f"SmolLM2-135M-Instruct on {about['device']}, {prompts} prompts.{oracle}\n",
        "| drafter | tokens | texts that part | margin of the two largest logits where they part | tokens per forward |",
        "|---|---|---|---|---|",
    ]
    for name, parts in rows.items():
        tokens = sum(part["tokens"] for part in parts)
        forwards = sum(part["tokens"] / part["tokens_per_forward"] for part in parts)
        margins = sorted(margin for part in parts for margin in part["margins"])
        parted = "–" if name == "plain" else sum(part["parted"] for part in parts)
        lines.append(f"| {name} | {tokens:,} | {parted} | {', '.join(f'{m:.2g}' for m in margins) or '–'} | {tokens / forwards:.2f} |")
    return "\n".join(lines) + "\n"


def widths(about: dict) -> str:
    plain = about["rows"][0]["ms"]
    lines = [
        "## What a forward of fixed shape costs\n",
        f"SmolLM2-135M-Instruct on {about['device']}, {about['threads']} threads, behind 256 tokens, median.\n",
        "| mode | tokens | ms | against plain decoding |",
        "|---|---|---|---|",
    ]
    lines += [f"| {row['mode']} | {row['tokens']} | {row['ms']:.1f} | {row['ms'] / plain:.2f}× |" for row in about["rows"]]
    return "\n".join(lines) + "\n"


def shares(about: dict) -> str:
    lines = [
        "## What our own code costs in a round\n",
        "Everything but the forwards of the two models: median over the rounds of four prompts. SmolLM2-135M-Instruct on "
        f"{about['device']}, {about['threads']} threads, random heads.\n",
        "| sampling | drafter | nodes | round, ms | ours, ms | share |",
        "|---|---|---|---|---|---|",
    ]
    for row in about["rows"]:
        share = row["ours"] / row["round"]
        lines.append(f"| {row['sampling']} | {row['drafter']} | {row['nodes']} | {row['round']:.1f} | {row['ours']:.2f} | {share:.1%} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
