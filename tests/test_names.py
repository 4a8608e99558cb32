"""The names that others rely on: the README lists what the package exports."""

import re
from pathlib import Path

import specdec

README = (Path(specdec.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
# What whoever writes a drafter needs.
PROTOCOL = ("Drafter", "Outcome", "Proposer", "Purpose", "TokenTree", "Uniforms")


def test_what_a_drafter_s_author_needs_is_exported():
    assert set(PROTOCOL) <= set(specdec.__all__)


def test_the_readme_names_what_is_exported():
    """Its table of methods, the names that it imports, and the calls that it mentions."""
    drafters = re.findall(r"^\| `.+?` \| `(\w+)` \|", README, re.MULTILINE)
    assert {"DistilledDraft", "DraftModel", "Combine", "PromptLookup"} <= set(drafters)
    imported = [name for line in re.findall(r"from specdec import (.+)", README) for name in re.findall(r"\w+", line)]
    assert imported
    methods = {name for name in specdec.__all__ if hasattr(getattr(specdec, name), "start") or name == "DistilledDraft"}
    for name in [*drafters, *imported]:
        assert name in specdec.__all__, f"the README lists {name}, and `from specdec import {name}` fails"
    assert methods - {"Drafter"} == set(drafters), "every drafter that is exported stands in the README's table, and no other"
