"""Open every page of the built book in headless Chromium, light and dark, and report what a visitor would see go wrong.

    python scripts/screenshots.py _build/html screenshots
"""

import argparse
import platform
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import sync_playwright

VIEWS = (("light", 1280), ("dark", 1280), ("light", 390))  # theme and width of the window; the last is a phone
ARGUMENTS = [
    "--no-sandbox",  # root in a container has no other way, and the pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Waits for pictures further down, which load late, and for fonts.
SETTLE = """() => {
    document.querySelectorAll('img[loading=lazy]').forEach(i => { i.loading = 'eager' });
    return Promise.allSettled([document.fonts.ready, ...[...document.images].map(i => i.decode())]).then(() => null);
}"""

# Runs in the page once it has settled.
INSPECT = """() => {
    // What reaches past the window or a box that hides it, where nothing scrolls: a reader never sees it.
    const edge = document.documentElement.clientWidth, right = e => e.getBoundingClientRect().right, boxes = new Map();
    const box = e => {  // the nearest one around e that hides or scrolls
        const up = e.parentElement;
        if (!boxes.has(up)) boxes.set(up, up.matches('.bd-article') ? null : getComputedStyle(up).overflowX === 'visible' ? box(up) : up);
        return boxes.get(up);
    };
    const limit = e => !box(e) ? edge : /auto|scroll/.test(getComputedStyle(box(e)).overflowX) ? Infinity : right(box(e));
    const cut = () => [...document.querySelectorAll('.bd-article *')].filter(e =>
        e.getClientRects().length && right(e) > limit(e) + 1
        && !e.closest('mjx-assistive-mml, .visually-hidden, .headerlink, svg *, mjx-math *')
    ).slice(0, 3).map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 60));
    return {
        theme: document.documentElement.dataset.theme,
        badFormulas: [...document.querySelectorAll('mjx-merror')].map(e => e.textContent),
        unrendered: [...document.querySelectorAll('.math')].filter(e => !e.querySelector('mjx-container')).map(e => e.textContent),
        badImages: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
        cut: cut(),
        overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    };
}"""


@dataclass
class Visit:
    """What one page in one theme showed. `problems` is empty when all is well."""

    page: str
    theme: str
    width: int
    picture: Path
    problems: list[str] = field(default_factory=list)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        return


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder's address on this computer while the block runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    mac = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
    return found or (str(mac) if platform.system() == "Darwin" and mac.exists() else None)


def pages(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.html")
        if path.relative_to(folder).parts[0] not in ("_static", "vendor")
    )


def visit(context, base: str, page: str, theme: str, width: int, out: Path) -> Visit:
    picture = out / f"{page.removesuffix('.html').replace('/', '-')}-{theme}-{width}.png"
    seen = Visit(page, theme, width, picture)
    with context.new_page() as tab:
        tab.on("console", lambda m: m.type == "error" and seen.problems.append(f"console: {m.text}"))
        tab.on("pageerror", lambda e: seen.problems.append(f"script: {e}"))
        tab.on("requestfailed", lambda r: seen.problems.append(f"not loaded: {r.url}"))
        tab.on("response", lambda r: r.status >= 400 and seen.problems.append(f"{r.status}: {r.url}"))
        tab.on("request", lambda r: r.url.startswith((base, "data:", "blob:")) or seen.problems.append(f"elsewhere: {r.url}"))
        tab.goto(base + page, wait_until="load")
        tab.evaluate("() => window.MathJax?.startup?.promise")
        tab.evaluate(SETTLE)
        state = tab.evaluate(INSPECT)
        tab.screenshot(path=picture, full_page=True, animations="disabled")  # no sidebar half way in
    for name in ("badFormulas", "unrendered", "badImages", "cut"):
        seen.problems += [f"{name}: {item}" for item in state[name]]
    if state["overflow"] > 1:
        seen.problems.append(f"the page is {state['overflow']} pixels wider than the window")
    if state["theme"] not in (None, theme):
        seen.problems.append(f"the page shows the theme {state['theme']}")
    return seen


def visit_all(folder: Path, out: Path, views=VIEWS) -> Iterator[Visit]:
    """Visit every page of `folder` in every view; pictures go to `out`."""
    out.mkdir(parents=True, exist_ok=True)
    with served(folder) as base, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        for theme, width in views:
            with browser.new_context(color_scheme=theme, viewport={"width": width, "height": 900}) as context:
                for page in pages(folder):
                    yield visit(context, base, page, theme, width, out)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    if find_chromium() is None:
        sys.exit("Error: Chromium was not found. On Debian or Ubuntu: sudo apt install chromium")
    bad = 0
    for seen in visit_all(arguments.folder, arguments.out):
        print(f"{'ok ' if not seen.problems else 'BAD'} {seen.page} {seen.theme} {seen.width} {seen.picture}")
        for problem in seen.problems:
            print(f"    {problem}")
        bad += bool(seen.problems)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
