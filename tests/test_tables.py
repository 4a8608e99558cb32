"""The pages made from stored figures say what the figures say."""

import json

import pytest

from benchmarks import tables
from specdec.measure import quartiles

PAGES = {"headline": tables.README} | {name: tables.RESULTS / f"{name}.md" for name in ("README", "bench", "grading")}


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_pages_are_up_to_date(path):
    assert path.read_text() == tables.pages()[path], f"{path} is not what the figures say: run `python -m benchmarks.tables`"


def test_a_number_changed_by_hand_or_a_lost_mark_is_seen():
    text, results = tables.README.read_text(), json.loads((tables.RESULTS / "bench.json").read_text())
    part = results["parts"][0]
    fastest = max(quartiles(row["ratios"])[1] for name, row in part["rows"].items() if not row["peer"])
    inside = text.split(tables.BEGIN)[1].split(tables.END)[0]
    assert f"{fastest:.2f}×" in inside
    changed = text.replace(inside, inside.replace(f"{fastest:.2f}×", "9.99×"))
    assert tables.with_headline(changed, results) == text != changed
    with pytest.raises(ValueError, match="headline"):
        tables.with_headline(text.replace(tables.END, ""), results)
