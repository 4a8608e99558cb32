"""The built book as files: links, resources, and no solution in it."""

import io
import json
import re
import sys
import tokenize
import zipfile
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup
from sitetools import site_or_skip

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import pack

ROOT = Path(__file__).resolve().parents[1]
MARKS = re.compile(r"### (BEGIN|END) (SOLUTION|HIDDEN TESTS)")
# What is shorter says nothing: `return x`, `for i in range(k):`
SHORTEST_LINE = 24
TOKENS_IN_A_ROW = 14


# -- links and resources -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built_site() -> Path:
    return site_or_skip()


@pytest.fixture(scope="module")
def soups(built_site) -> dict[Path, BeautifulSoup]:
    pages = [p for p in built_site.rglob("*.html") if p.relative_to(built_site).parts[0] not in ("_static", "vendor")]
    return {page: BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser") for page in pages}


def broken_links(soups: dict[Path, BeautifulSoup]) -> list[str]:
    anchors = {page: {tag.get("id") or tag.get("name") for tag in soup.find_all(True)} for page, soup in soups.items()}
    broken = []
    for page, soup in soups.items():
        for tag, attribute in [(t, a) for a in ("href", "src") for t in soup.find_all(True, {a: True})]:
            link = tag[attribute]
            address, fragment = urldefrag(link)
            if urlsplit(address).scheme or address.startswith("//"):
                continue
            target = (page.parent / unquote(urlsplit(address).path)).resolve() if address else page
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                broken.append(f"{page.name}: {link} leads nowhere")
            elif fragment and target in anchors and unquote(fragment) not in anchors[target]:
                broken.append(f"{page.name}: {link} names no place on that page")
    return broken


def from_elsewhere(page: str) -> list[str]:
    """Addresses on other hosts from which this HTML would load something. A link that a reader may follow is none."""
    soup = BeautifulSoup(page, "html.parser")
    loaded = [tag[attribute] for attribute in ("src", "srcset", "data", "poster") for tag in soup.find_all(True, {attribute: True})]
    passive = {"canonical", "next", "prev", "author", "license", "index", "search"}
    loaded += [tag["href"] for tag in soup.find_all("link", href=True) if not passive & set(tag.get("rel", []))]
    loaded += [m for style in soup.find_all("style") for m in addresses_in_css(style.get_text())]
    loaded += [m for tag in soup.find_all(style=True) for m in addresses_in_css(tag["style"])]
    return [address for address in loaded if re.match(r"(https?:)?//", address)]


def addresses_in_css(css: str) -> list[str]:
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", css)


def test_every_page_of_the_contents_is_there(built_site):
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text())

    def files(node):
        if isinstance(node, dict):
            yield from ([node["file"]] if "file" in node else [])
            node = list(node.values())
        if isinstance(node, list):
            for child in node:
                yield from files(child)

    wanted = [contents["root"], *files(contents)]
    assert len(wanted) > 6
    assert not [name for name in wanted if not (built_site / f"{name}.html").is_file()]


def test_every_internal_link_resolves(soups):
    assert not broken_links(soups)


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "a.html"
    page.write_text("<p id=here><a href=#here>ok</a><a href=a.html#nowhere>1</a><a href=b.html>2</a><img src=c.png><a href=https://x.org/>ok</a>")
    assert len(broken_links({page: BeautifulSoup(page.read_text(), "html.parser")})) == 3


def test_nothing_is_loaded_from_another_host(soups, built_site):
    found = [f"{page.name}: {address}" for page in soups for address in from_elsewhere(page.read_text(encoding="utf-8"))]
    for css in built_site.rglob("*.css"):
        found += [f"{css.name}: {a}" for a in addresses_in_css(css.read_text(encoding="utf-8")) if re.match(r"(https?:)?//", a)]
    assert not found


def test_a_resource_from_another_host_is_found():
    page = """<link rel=stylesheet href="https://x.org/a.css"><script src="//x.org/b.js"></script><img src=local.png>
        <div style="background: url('http://x.org/c.png')"></div><style>@import "https://x.org/d.css";</style>
        <a href="https://x.org/">a link</a><link rel=canonical href="https://x.org/">"""
    assert len(from_elsewhere(page)) == 4


def test_formulas_are_rendered_from_here(soups, built_site):
    script = built_site / "vendor/mathjax/tex-mml-chtml.js"
    assert script.is_file()
    assert len(list((script.parent / "output/chtml/fonts/woff-v2").glob("*.woff"))) == 23
    with_formulas = [(page, soup) for page, soup in soups.items() if soup.select(".math")]
    assert with_formulas
    for page, soup in with_formulas:
        sources = [(page.parent / urlsplit(tag["src"]).path).resolve() for tag in soup.find_all("script", src=True)]
        assert script.resolve() in sources, f"{page} has formulas and does not load MathJax"


def test_lessons_ran_without_errors_or_warnings(soups):
    lessons = {page: soup for page, soup in soups.items() if page.name == "lesson.html"}
    assert lessons
    for page, soup in lessons.items():
        bad = soup.select(".output.stderr, .output.traceback")
        assert not bad, f"{page}: {bad[0].get_text()[:500]}"
        assert soup.select(".cell_output"), f"{page} shows no output: was it run?"


# -- solutions stay out --------------------------------------------------------------------------------------------


def squeeze(text: str) -> str:
    return re.sub(r"\s+", "", text)


def code_tokens(code: str) -> list[str]:
    """Names, numbers and signs, without comments and layout; stops quietly where the text is no Python."""
    tokens = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
                tokens.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        return tokens
    return tokens


def split_source(source: str) -> tuple[list[str], str]:
    """Of a percent-format exercise: the secret regions, and everything else."""
    secret, public, region = [], [], None
    for line in source.splitlines():
        mark = MARKS.search(line)
        if mark and mark[1] == "BEGIN":
            region = []
        elif mark:
            secret.append("\n".join(region))
            region = None
        else:
            (public if region is None else region).append(line)
    assert region is None, "a region that is not closed"
    return secret, "\n".join(public)


class Secrets:
    """What gives a solution or a hidden check away: its longer lines, and its runs of tokens, unless the public part has them too."""

    def __init__(self, source: str):
        regions, public = split_source(source)
        known = squeeze(public)
        lines = (line for region in regions for line in region.splitlines())
        lines = (line for line in lines if not re.match(r"\s*(import|from) ", line))
        self.lines = {s for s in map(squeeze, lines) if len(s) >= SHORTEST_LINE and s not in known}
        self.runs = {run for region in regions for run in self.runs_of(region)} - self.runs_of(public)

    @staticmethod
    def runs_of(code: str) -> set[str]:
        tokens = code_tokens(code)
        return {" ".join(tokens[i : i + TOKENS_IN_A_ROW]) for i in range(len(tokens) - TOKENS_IN_A_ROW + 1)}

    def found_in(self, texts: list[str]) -> list[str]:
        """texts: pieces of prose or code of one file."""
        joined = squeeze("\n".join(texts))
        found = [line for line in self.lines if line in joined]
        found += [run for text in texts for run in self.runs & self.runs_of(text)]
        return found + (["a marker of a region"] if MARKS.search("\n".join(texts)) else [])


def texts_of(file: Path) -> list[str]:
    """The text of a file as a reader would get it: cells of a notebook, preformatted and running text of a page."""
    raw = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".ipynb":
        cells = json.loads(raw)["cells"]
        outputs = [json.dumps(cell.get("outputs", []), ensure_ascii=False) for cell in cells]
        return ["".join(cell["source"]) for cell in cells] + outputs
    if file.suffix == ".html":
        soup = BeautifulSoup(raw, "html.parser")
        return [pre.get_text() for pre in soup.find_all("pre")] + [soup.get_text()]
    if file.suffix == ".md":
        return [*re.findall(r"```\{code-cell\}[^\n]*\n(.*?)```", raw, re.DOTALL), raw]
    return [raw]


def readable(folder: Path) -> list[Path]:
    kinds = {".html", ".ipynb", ".md", ".py", ".txt", ".js", ".json", ".csv", ".svg"}
    files = [file for file in sorted(folder.rglob("*")) if file.suffix in kinds and file.is_file()]
    return [file for file in files if not {"vendor", "_static", ".ipynb_checkpoints"} & set(file.relative_to(folder).parts)]


def leaks(secrets: dict[str, Secrets], folder: Path) -> list[str]:
    texts = {file: texts_of(file) for file in readable(folder)}
    return [
        f"{file.relative_to(folder)} gives away {name}: {found[0]}"
        for file, pieces in texts.items()
        for name, secret in secrets.items()
        if (found := secret.found_in(pieces))
    ]


@pytest.fixture(scope="module")
def secrets() -> dict[str, Secrets]:
    sources = sorted((ROOT / "solutions").glob("*/exercise.py"))
    if not sources:
        pytest.skip("this copy has no solutions/, so there is nothing to give away")
    return {source.parent.name: Secrets(source.read_text(encoding="utf-8")) for source in sources}


def test_every_exercise_has_something_to_hide(secrets):
    assert all(secret.lines and secret.runs for secret in secrets.values())


def test_no_solution_in_chapters(secrets):
    assert {file.parent.name for file in readable(ROOT / "chapters") if file.name == "exercise.ipynb"} == set(secrets)
    assert not leaks(secrets, ROOT / "chapters")


def test_no_solution_in_the_built_site(secrets, built_site):
    assert not leaks(secrets, built_site)


EXERCISE = """# %% nbgrader={"solution": true}
def residual(p, q):
    ### BEGIN SOLUTION
    positive = np.clip(np.asarray(p) - np.asarray(q), 0.0, None)
    return positive / positive.sum() if positive.any() else np.asarray(p)
    ### END SOLUTION
# %%
from checks import check_residual
check_residual(residual)
### BEGIN HIDDEN TESTS
assert abs(residual([0.5, 0.5], [0.2, 0.8])[0] - 1.0) < 1e-12
### END HIDDEN TESTS
"""


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("page.html", "<pre><span class=n>positive</span> <span>=</span> np.clip(np.asarray(p) - np.asarray(q), 0.0, None)</pre>"),
        ("lesson.md", "```{code-cell} ipython3\nassert abs(residual([0.5,0.5],[0.2,0.8])[0]-1.0)<1e-12\n```"),
        ("reformatted.md", "```{code-cell}\npositive = np.clip(  # another layout\n  np.asarray(p) - np.asarray(q), 0.0, None)\n```"),
        ("exercise.ipynb", json.dumps({"cells": [{"source": ["return positive / positive.sum() if positive.any() else np.asarray(p)"]}]})),
        ("exercise.ipynb", json.dumps({"cells": [{"source": "### BEGIN HIDDEN TESTS"}]})),
    ],
)
def test_a_planted_solution_is_found(tmp_path, name, planted):
    (tmp_path / name).write_text(planted)
    assert leaks({"planted": Secrets(EXERCISE)}, tmp_path)


def test_the_public_part_of_an_exercise_is_no_leak(tmp_path):
    """The student notebook itself, and a lesson that calls the same functions, must pass."""
    _, public = split_source(EXERCISE)
    (tmp_path / "exercise.ipynb").write_text(json.dumps({"cells": [{"source": public}, {"source": "p - q", "outputs": []}]}))
    (tmp_path / "lesson.md").write_text("```{code-cell}\nfrom specdec import residual\nresidual(p, q)\n```")
    assert not leaks({"planted": Secrets(EXERCISE)}, tmp_path)


# -- the project, packed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clone", [True, False])
def test_the_packed_project_has_no_solutions(tmp_path, clone):
    project = tmp_path / "project"
    for name in ("Makefile", "chapters/02/exercise.ipynb", "solutions/02/exercise.py", "autograder/zoo/right/a.py", "autograder/judge.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("as committed")
    (project / ".gitignore").write_text("/graded/\n")
    (project / "graded").mkdir()
    (project / "graded" / "grades.csv").write_text("marks")
    if clone:
        for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"]):
            pack.git(project, *command)
        (project / "chapters/02/exercise.ipynb").write_text("solved by the teacher")
        (project / "roster.csv").write_text("names")
    pack.pack(tmp_path / "specdec.zip", project)
    with zipfile.ZipFile(tmp_path / "specdec.zip") as packed:
        names = {name for name in packed.namelist() if not name.endswith("/")}
        assert names == {f"specdec/{name}" for name in (".gitignore", "Makefile", "chapters/02/exercise.ipynb", "autograder/judge.py")}
        assert packed.read("specdec/chapters/02/exercise.ipynb") == b"as committed"


def test_the_site_carries_the_project(built_site, secrets, tmp_path):
    with zipfile.ZipFile(built_site / "specdec.zip") as packed:
        assert {"specdec/Makefile", "specdec/chapters/02-rejection-rule/lesson.md"} <= set(packed.namelist())
        assert not [name for name in packed.namelist() if name.startswith(("specdec/solutions", "specdec/autograder/zoo"))]
        packed.extractall(tmp_path, [name for name in packed.namelist() if name.startswith("specdec/chapters/")])
    assert not leaks(secrets, tmp_path)


# -- numbers -------------------------------------------------------------------------------------------------------


def test_chapters_carry_the_numbers_of_their_folders(soups, built_site):
    lessons = {page: soup for page, soup in soups.items() if page.name == "lesson.html"}
    assert lessons
    for page, soup in lessons.items():
        number = page.parent.name[:2]
        assert soup.select_one("article h1").get_text().startswith(f"{number} ")
        beside = {a["href"]: a.get_text(strip=True) for a in soup.select(".bd-links a.reference")}
        assert beside["#"].startswith(f"{number} ")
    first = soups[built_site / "index.html"]
    for a in first.select(".bd-links a.reference[href$='/lesson.html']"):
        assert a.get_text(strip=True).startswith(Path(a["href"]).parent.name[:2] + " ")


def test_figures_and_theorems_are_numbered_by_chapter(soups):
    """Theorem 2.1, Algorithm 2.2, Figure 2.1; and a reference says what stands where it leads."""
    known = {page: numbered_places(soup) for page, soup in soups.items()}
    lessons = [page for page in soups if page.name == "lesson.html"]
    assert all(known[page] for page in lessons)
    for page in lessons:
        chapter = int(page.parent.name[:2])
        assert not [said for said in known[page].values() if not re.fullmatch(rf"[A-Z][a-z]+ {chapter}\.\d+", said)]
    seen = 0
    for page, soup in soups.items():
        for a in soup.select("a.reference"):
            if re.fullmatch(r"(Figure|Theorem|Algorithm|Definition|Lemma|Corollary) [\d.]+", a.get_text(strip=True)):
                address, place = urldefrag(a["href"])
                assert known[(page.parent / unquote(address)).resolve() if address.strip("#") else page][place] == a.get_text(strip=True)
                seen += 1
    assert seen > 5


def numbered_places(soup: BeautifulSoup) -> dict[str, str]:
    """The id of each figure and theorem: its name and number."""
    places = {}
    for number in soup.select("article .caption-number"):
        place = number.find_parent(["figure", "div"], id=True)
        places[place["id"]] = number.get_text(strip=True)
    return places
