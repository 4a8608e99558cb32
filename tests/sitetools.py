"""What the tests of the built book share: where it is, and what happens when it is not there."""

import os
from pathlib import Path

import pytest

SITE = Path(__file__).resolve().parents[1] / "_build" / "html"


def skip_or_fail(reason: str) -> None:
    """CI has built the book and installed the browser: there, what would be skipped elsewhere has failed."""
    (pytest.fail if os.environ.get("SPECDEC_REQUIRE_SITE") else pytest.skip)(reason)


def site_or_skip() -> Path:
    if not (SITE / "index.html").is_file():
        skip_or_fail("the book is not built: run `make site`, then `.venv/bin/python -m pytest tests/test_site.py tests/test_pages.py`")
    return SITE
