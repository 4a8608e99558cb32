"""JupyterLab as `make lab` opens it: a lesson is a notebook that runs, and an exercise answers."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jupytext
import pytest
import yaml
from playwright.sync_api import sync_playwright
from sitetools import skip_or_fail

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import screenshots

ROOT = Path(__file__).resolve().parents[1]

SETTINGS = ROOT / "scripts" / "lab"
LESSONS = sorted((ROOT / "chapters").glob("*/lesson.md"))
EXERCISES = sorted((ROOT / "chapters").glob("*/exercise.ipynb"))
CHAPTER = "02-rejection-rule"


def settings(name: str) -> dict:
    return json.loads((SETTINGS / "labconfig" / name).read_text(encoding="utf-8"))


# -- without a browser ---------------------------------------------------------------------------------------------


def test_every_setting_has_a_name_that_jupyterlab_knows():
    """A name that JupyterLab does not know is no error there: it has no effect."""
    share = Path(sys.prefix) / "share" / "jupyter"
    for plugin, values in settings("default_setting_overrides.json").items():
        package, name = plugin.split(":")
        schema = json.loads((share / "lab" / "schemas" / package / f"{name}.json").read_text(encoding="utf-8"))
        assert set(values) <= set(schema["properties"])
        for key, value in values.items():
            choices = [choice["const"] for choice in schema["properties"][key].get("oneOf", [])]
            assert not choices or value in choices
    (viewer,) = {*settings("default_setting_overrides.json")["@jupyterlab/docmanager-extension:plugin"]["defaultViewers"].values()}
    scripts = (share / "labextensions" / "jupyterlab-jupytext" / "static").glob("*.js")
    assert any(f'"{viewer}"' in script.read_text(encoding="utf-8") for script in scripts)
    for package in settings("page_config.json")["disabledExtensions"]:
        assert (share / "labextensions" / package / "package.json").is_file()


def test_make_lab_takes_these_settings():
    lines = subprocess.run(["make", "-n", "lab", "LAB_ARGS=--no-browser"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f'JUPYTER_CONFIG_PATH="{SETTINGS}' in lines
    assert re.search(r"jupyter lab \$root --no-browser chapters\b", lines)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.parent.name)
def test_saving_a_lesson_in_jupyterlab_loses_nothing(lesson):
    before = jupytext.read(lesson)
    after = jupytext.reads(jupytext.writes(before, fmt="md:myst"), fmt="md:myst")
    assert [(cell.cell_type, cell.source, cell.metadata) for cell in before.cells] == [
        (cell.cell_type, cell.source, cell.metadata) for cell in after.cells
    ]
    assert sum(cell.cell_type == "code" for cell in before.cells) > 5


@pytest.mark.parametrize("page", [*LESSONS, *EXERCISES], ids=lambda path: f"{path.parent.name} {path.name}")
def test_formulas_use_no_macro_that_the_book_alone_has(page):
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]
    macros = config["mathjax3_config"]["tex"]["macros"]
    text = "\n".join(cell.source for cell in jupytext.read(page).cells if cell.cell_type == "markdown")
    assert not {name for name in macros if re.search(rf"\\{name}(?![a-zA-Z])", text)}, "JupyterLab shows the formula as text: write it out"


# -- in a browser --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of the JupyterLab that `make lab` starts, over copies of the chapters and without a user's own settings."""
    if screenshots.find_chromium() is None:
        skip_or_fail("Chromium is not installed: on Debian or Ubuntu, `sudo apt install chromium`")
    project = tmp_path_factory.mktemp("lab")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, project)
    for name in ("scripts", "chapters"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__"))
    (project / ".venv").symlink_to(sys.prefix)
    own = {f"JUPYTER_{name}_DIR": str(project / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    arguments = "--no-browser --port=0 --IdentityProvider.token=token --LabApp.expose_app_in_browser=True"
    command = ["make", "-o", ".venv/.installed", "lab", f"LAB_ARGS={arguments}"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "JUPYTER"))}
    environment |= own | {"PYTHONPATH": str(ROOT)}
    with open(project / "log", "w+") as log, subprocess.Popen(
        command, cwd=project, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    ) as server:
        try:
            yield address(server, project)
        finally:
            os.killpg(server.pid, 15)


def address(server: subprocess.Popen, project: Path) -> str:
    """Where the server is, which it writes into a file as soon as it listens."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert server.poll() is None, (project / "log").read_text(encoding="utf-8")
        for file in (project / "runtime").glob("jpserver-*.json"):
            if text := file.read_text(encoding="utf-8"):
                return json.loads(text)["url"] + "lab?token=token"
        time.sleep(0.2)
    raise AssertionError("JupyterLab did not start:\n" + (project / "log").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tab(lab):
    with (
        sync_playwright() as play,
        play.chromium.launch(executable_path=screenshots.find_chromium(), args=screenshots.ARGUMENTS) as browser,
        browser.new_page(viewport={"width": 1400, "height": 2400}) as tab,
    ):
        tab.set_default_timeout(60_000)
        tab.goto(lab)
        item(tab, CHAPTER).dblclick()
        yield tab


def item(tab, name: str):
    """A line of the file browser."""
    return tab.locator(".jp-DirListing-item").filter(has=tab.get_by_text(name, exact=True))


def cell(tab, text: str):
    return tab.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell", has_text=text)


# No role or directive stands in a text as it is written.
ALL_RENDERED = r"""() => {
    const texts = [...document.querySelectorAll('.jp-MarkdownCell')].map(cell => cell.innerText);
    return texts.length > 10 && !texts.some(text => /\{(prf:)?\w+\}`|^:::|^```/m.test(text));
}"""

# Until then a cell that is run says nothing and is not run.
KERNEL_READY = "() => jupyterapp.shell.currentWidget.sessionContext.ready"

# What the notebook in front holds after all of its cells have run.
RUN_ALL = """async () => {
    await jupyterapp.commands.execute('notebook:run-all-cells');
    const notebook = jupyterapp.shell.currentWidget.content.model.toJSON();
    return notebook.cells.filter(cell => cell.cell_type === 'code');
}"""


@pytest.mark.slow
@pytest.mark.in_order
@pytest.mark.model
class TestInTheBrowser:
    def test_a_double_click_opens_a_lesson_that_reads_like_a_page(self, tab):
        item(tab, "lesson.md").dblclick()
        page = tab.locator(".jp-NotebookPanel")
        page.locator(".katex").first.wait_for()
        page.locator("aside", has_text="When you are done, you can").wait_for()
        page.locator(".jp-MarkdownCell", has_text=re.compile(r"Theorem 1\s*\(")).first.wait_for()
        page.locator(".myst").get_by_text("target", exact=True).first.wait_for()  # a term
        tab.wait_for_function(ALL_RENDERED, timeout=30_000)  # cells further down are rendered later
        assert not page.locator(".katex-error").count()

    def test_nothing_else_greets_the_learner(self, tab):
        tab.wait_for_timeout(2000)  # what pops up does so a moment after the start
        assert not tab.locator(".jp-Dialog, .Toastify__toast").count()
        titles = tab.locator(".jp-SideBar .lm-TabBar-tab").evaluate_all("tabs => tabs.map(tab => tab.title)")
        assert "Table of Contents" in str(titles)
        assert not re.search("assignment|formgrader|nbgrader", f"{titles} {tab.locator('#jp-MainMenu').inner_text()}", re.IGNORECASE)

    def test_the_lesson_runs(self, tab):
        tab.set_default_timeout(600_000)
        cells = tab.evaluate(RUN_ALL)
        tab.set_default_timeout(60_000)
        assert len(cells) > 5
        for number, code in enumerate(cells, 1):
            assert code["execution_count"] == number, f"the cell was not run: {code['source']}"
            assert not [output for output in code["outputs"] if output["output_type"] == "error"], code["outputs"]
        assert any("image/png" in output.get("data", {}) for code in cells for output in code["outputs"])

    def test_an_exercise_names_a_mistake_and_accepts_what_is_right(self, tab, answers):
        item(tab, "exercise.ipynb").dblclick()
        first = cell(tab, "from autograder.checks import check")
        first.wait_for()
        tab.evaluate(KERNEL_READY)
        first.locator(".cm-content").click()
        tab.keyboard.press("Shift+Enter")
        first.locator(".jp-InputPrompt", has_text="[1]:").wait_for(timeout=300_000)  # PyTorch is imported
        for answer, said in answers.items():
            cell(tab, "def accept_or_reject").locator(".cm-content").click()
            tab.keyboard.press("Control+A")
            tab.keyboard.insert_text(answer)
            tab.keyboard.press("Shift+Enter")  # runs it, and goes on to the check
            tab.keyboard.press("Shift+Enter")
            cell(tab, 'check("02.accept_or_reject"').locator(".jp-OutputArea", has_text=said).wait_for(timeout=300_000)

    def test_a_hint_unfolds(self, tab):
        hint = tab.locator(".jp-NotebookPanel details", has_text="A token with q(x) = 0 is never drafted").first
        assert hint.locator("p").is_hidden()
        hint.locator("summary").click()
        assert hint.locator("p").first.is_visible()
        assert "disclosure" in hint.locator("summary").evaluate("summary => getComputedStyle(summary).listStyleType")


@pytest.fixture
def answers() -> dict[str, str]:
    """Of the first task: a wrong answer and a right one, and what the check says to each."""
    source = ROOT / "solutions" / CHAPTER / "exercise.py"
    if not source.is_file():
        pytest.skip("this copy has no solutions/")
    right = next(cell.source for cell in jupytext.read(source).cells if "def accept_or_reject" in cell.source)
    wrong = re.sub(r"### BEGIN SOLUTION.*### END SOLUTION", "return u * p_prob < q_prob", right, flags=re.DOTALL)
    return {wrong: "q/p instead of p/q", right: "✓ 02.accept_or_reject"}
