"""Every page of the built book in a real browser: light, dark and on a phone's width."""

import sys
from pathlib import Path

import pytest
from sitetools import site_or_skip, skip_or_fail

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import screenshots

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built_site() -> Path:
    return site_or_skip()


@pytest.fixture(scope="module")
def browser() -> None:
    if screenshots.find_chromium() is None:
        skip_or_fail("Chromium is not installed: on Debian or Ubuntu, `sudo apt install chromium`")


@pytest.fixture(scope="module")
def visits(built_site, browser, tmp_path_factory):
    return list(screenshots.visit_all(built_site, tmp_path_factory.mktemp("screenshots")))


def test_nothing_goes_wrong_on_any_page(visits):
    problems = [f"{seen.page} ({seen.theme}, {seen.width}): {problem}" for seen in visits for problem in seen.problems]
    assert not problems


def test_every_page_was_seen_in_every_view(visits, built_site):
    assert {(seen.page, seen.theme, seen.width) for seen in visits} == {
        (page, *view) for page in screenshots.pages(built_site) for view in screenshots.VIEWS
    }
    assert all(seen.picture.stat().st_size > 5_000 for seen in visits)


def test_a_broken_page_is_reported(browser, tmp_path):
    """What the visitor must see is seen: an error in a script, a missing picture, a file from elsewhere, a page that is too wide."""
    (tmp_path / "index.html").write_text(
        "<!doctype html><link rel=icon href=data:,><body><img src=missing.png><div style='width:3000px'>wide</div>"
        "<div class=bd-article style='overflow:hidden'><p style='overflow:auto'><b style='display:block;width:2000px'>scrolls</b></p>"
        "<p><b style='display:block;width:2000px'>past the edge</b></p>"
        "<div style='width:99px;overflow:hidden'><i style='display:block;width:200px'>hidden</i></div></div>"
        "<script>console.error('broken on purpose')</script><script>undefinedFunction()</script>"
        "<img src='http://127.0.0.1:9/elsewhere.png'><span class=math>\\(x\\)</span>"
    )
    (seen,) = screenshots.visit_all(tmp_path, tmp_path / "out", views=[("light", 1280)])
    said = "\n".join(seen.problems)
    for expected in (
        "console: broken on purpose",
        "undefinedFunction",
        "404: ",
        "elsewhere: http://127.0.0.1:9/",
        "badImages: ",
        "unrendered: ",
        "cut: B past the edge",
        "cut: I hidden",
        "pixels wider than the window",
    ):
        assert expected in said
    assert "scrolls" not in said
