"""The ways into the project: pins, the conda file, the Makefile."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from setuptools.discovery import PEP420PackageFinder

ROOT = Path(__file__).resolve().parents[1]
NAMED_FOR_CONDA = {"jupyter-book", "jupyterlab", "numpy", "scipy", "torch", "matplotlib", "nbgrader"}


def constraints() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in pins}


def project_requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != "all" for line in lines]
    return [Requirement(line) for line in project["dependencies"] + extras]


def conda_pip_section() -> list[str]:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    return next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))


def closure(markers: bool) -> dict[str, list[Requirement]]:
    """Every installed package that the project needs, and who asked for it how.

    markers=False also follows what only other systems or Python versions need.
    """
    asked: dict[str, list[Requirement]] = {}
    todo, seen = project_requirements(), set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        asked.setdefault(name, []).append(requirement)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        try:
            lines = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # needed elsewhere only; test_every_requirement_is_installed looks at the rest
        for needed in map(Requirement, lines):
            marker = needed.marker
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras))
            if applies or (not markers and "extra" not in str(marker)):
                todo.append(needed)
    return asked


def test_the_wheel_has_every_package_but_the_zoo():
    """The zoo's right solutions, and what lies beside them."""
    find = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]["find"]
    packages = {name.replace(".", "/") for name in PEP420PackageFinder.find(str(ROOT), **find)}
    assert not {name for name in packages if "zoo" in name or "solutions" in name}
    code = {path.parent.relative_to(ROOT).as_posix() for top in ("specdec", "autograder") for path in (ROOT / top).rglob("*.py")}
    assert {name for name in code if not name.startswith("autograder/zoo")} <= packages


def test_pins_are_exact():
    for pin in constraints().values():
        assert len(pin.specifier) == 1, f"{pin} is not one exact pin"
        assert next(iter(pin.specifier)).operator == "==", f"{pin} is not one exact pin"
    assert str(constraints()["torch"]) == "torch==2.13.0"


def test_pins_are_what_is_installed():
    wrong = []
    for name in closure(markers=True):
        pin = constraints().get(name)
        installed = distribution(name).version if pin else None
        # torch's CPU build calls itself 2.13.0+cpu: the part after + is not part of the pin.
        if pin and Version(installed).public not in pin.specifier:
            wrong.append(f"{pin}, but {installed} is installed")
    assert not wrong


def test_whole_environment_is_pinned():
    lacking = [
        name
        for name, asked in closure(markers=True).items()
        if name not in constraints()
        # torch's CUDA build pins its own parts, which the CPU build does not have
        and not any(specifier.operator == "==" for requirement in asked for specifier in requirement.specifier)
    ]
    assert not lacking, "add to constraints.txt"


def test_no_pin_is_unused():
    unused = set(constraints()) - set(closure(markers=False))
    assert not unused, "drop from constraints.txt"


def test_no_pins_anywhere_else():
    files = [ROOT / name for name in ("pyproject.toml", "environment.yml", "Makefile", "README.md", ".ci/run")]
    files += sorted((ROOT / "scripts").glob("*"))
    pin = re.compile(r"[\w\]-]\s*==\s*\d")
    found = [f"{file.name}: {line}" for file in files if file.is_file() for line in file.read_text().splitlines() if pin.search(line)]
    assert not found


def test_conda_file_names_what_it_promises():
    entries = conda_pip_section()
    assert "-c constraints.txt" in entries
    assert "-e .[all]" in entries
    named = {canonicalize_name(entry) for entry in entries if not entry.startswith("-")}
    assert named == NAMED_FOR_CONDA
    assert named <= set(constraints())


@pytest.mark.slow
def test_conda_pip_section_installs(tmp_path_factory):
    """In a fresh environment, what conda does: write the pip section to a file beside environment.yml, and `pip install -U -r` it."""
    folder = tmp_path_factory.mktemp("conda")
    try:
        project = folder / "project"
        project.mkdir()
        for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "LICENSE-text"):
            shutil.copy(ROOT / name, project)
        for name in ("specdec", "autograder"):
            shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
        (project / "condaenv.requirements.txt").write_text("\n".join(conda_pip_section()) + "\n")
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"

        def run(*arguments: str | Path) -> str:
            done = subprocess.run(arguments, cwd=project, capture_output=True, text=True)
            assert done.returncode == 0, f"{arguments}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            return done.stdout

        options = shlex.split(os.environ.get("PIP_ARGS", ""))
        run(python, "-m", "pip", "install", *options, "-U", "-r", "condaenv.requirements.txt", "--exists-action=b")
        run(python, "-m", "pip", "check")
        modules = ("jupyter_book", "jupyterlab", "numpy", "scipy", "torch", "matplotlib", "nbgrader", "specdec", "autograder")
        run(python, "-c", f"import {', '.join(modules)}")
        run(folder / "env" / "bin" / "specdec", "--help")
        for line in run(python, "-m", "pip", "list", "--format=freeze").splitlines():
            name, _, version = line.partition("==")
            pin = constraints().get(canonicalize_name(name))
            assert pin is None or Version(version).public in pin.specifier, f"{line} installed, {pin} pinned"
    finally:
        shutil.rmtree(folder)  # more than a gigabyte, which pytest would keep


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "MFLAGS"}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=ROOT, env=clean | environment, capture_output=True, text=True
    )


def test_make_alone_lists_every_target():
    done = make()
    assert done.returncode == 0
    listed = set(re.findall(r"^  ([\w-]+) +\S", done.stdout, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert listed == set(phony)
    assert {"book", "test", "lab", "exercises", "grade", "clean", "help", "site"} <= listed
    assert "\033" not in done.stdout, "no colour codes in a file or a pipe"


@pytest.mark.parametrize(
    ("python", "message"),
    [("no-such-python", "does not run here"), ("old", "needs Python 3.11 or newer")],
)
def test_a_wrong_python_is_named(tmp_path, python, message):
    """A shell script stands in for an old Python: it answers the version check as one would."""
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.9.6' && exit\n[ \"$2\" = pass ]\n")
    old.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = make("env", f"VENV={tmp_path}/env", f"PYTHON={python}", PATH=path)
    assert done.returncode != 0
    assert message in done.stderr
    assert not (tmp_path / "env").exists()


def test_grade_says_what_it_needs():
    done = make("grade", "-o", ".venv/.installed")  # -o: do not install anything first
    assert done.returncode != 0
    assert "make grade SUBMISSIONS=" in done.stderr


def test_the_book_takes_the_next_free_port(tmp_path):
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import serve
    finally:
        sys.path.pop(0)
    with serve.bind(tmp_path, 18000) as first, serve.bind(tmp_path, first.server_port) as second:
        assert second.server_port > first.server_port


@pytest.fixture
def small_project(tmp_path):
    """This Makefile over a book of one page; in place of its programs one that counts how often the book was built."""
    for name in ("specdec/code.py", "autograder/checks/check.py", "chapters/lesson.md", "index.md", "pyproject.toml", "constraints.txt",
                 "scripts/ipython_kernel_config.py", ".venv/.installed", ".venv/bin/python", ".venv/bin/jupyter-book"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + ("echo built >> built\n" if path.name == "jupyter-book" else ""))
        path.chmod(0o755)
        os.utime(path, (1e9, 1e9 + name.startswith(".venv")))
    shutil.copy(ROOT / "Makefile", tmp_path)

    def builds() -> int:
        before = (tmp_path / "built").read_text().count("built") if (tmp_path / "built").exists() else 0
        done = subprocess.run(["make", "_build/.site"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "built").read_text().count("built") - before

    assert builds() == 1
    return tmp_path, builds


def test_the_book_is_not_built_again_because_tests_ran(small_project):
    """What Python and editors write beside the code changes the dates of folders."""
    project, builds = small_project
    for name in ("specdec/__pycache__/code.pyc", "autograder/checks/__pycache__/check.pyc", "chapters/.ipynb_checkpoints/lesson.md"):
        (project / name).parent.mkdir()
        (project / name).write_text("")
    assert builds() == 0


@pytest.mark.parametrize("name", ["specdec/code.py", "autograder/checks/check.py", "chapters/lesson.md"])
@pytest.mark.parametrize("change", ["written", "removed", "added"])
def test_the_book_is_built_again_when_what_it_is_made_of_changed(small_project, name, change):
    project, builds = small_project
    (project / "_build" / ".jupyter_cache").mkdir()
    path = project / name
    if change == "removed":
        path.unlink()
    else:
        path = path if change == "written" else path.with_name("another.md")
        path.write_text("new")
        os.utime(path, (2e9, 2e9)) if change == "written" else os.utime(path, (1e9, 1e9))
    assert builds() == 1
    assert (project / "_build" / ".jupyter_cache").exists() == name.startswith("chapters"), "executed lessons are kept, or forgotten"
