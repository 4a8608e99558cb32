"""What a notebook's code can import: what works in Jupyter works in grading, and where it does not, both sides say so."""

import sys
import types
from pathlib import Path

import pytest

from autograder import checks
from autograder.checks import core, notebook
from autograder.inside import shell
from autograder.judging import judge as judging
from autograder.judging import sandbox
from autograder.judging.judge import Code
from autograder.judging.sandbox import Sandbox
from autograder.judging.session import RemoteFunction, Session

SANDBOXED = [pytest.param(True, marks=pytest.mark.skipif(bool(sandbox.unavailable()), reason="no sandbox")), False]
OURS = sorted(path.stem for path in sandbox.INSIDE.glob("*.py") if path.stem != "__init__")
LIBRARIES = ["random", "types", "json", "statistics", "numpy", "torch"]
TRIED = """
def f(name):
    try:
        __import__(name)
        return True
    except ModuleNotFoundError:
        return False
"""


@pytest.fixture(scope="module", params=SANDBOXED, ids=["sandbox", "unsafe"])
def box(request):
    with Sandbox(unsafe=not request.param, torch=False) as box:
        yield box


@pytest.fixture
def session(box):
    session = Session(box.open())
    with session.time_limit(60):
        yield session
    session.close()


def run(session, *sources):
    for source in sources:
        session.request("cell", name="a", source=source)


def test_no_name_of_ours_is_taken(session):
    run(session, TRIED)
    assert OURS
    assert [name for name in OURS if RemoteFunction(session, "f")(name)] == []


def test_a_helper_may_be_called_like_a_module_of_ours(session):
    """Written by a magic or by Python, with ours at work before it and after it."""
    names = [*OURS, "tests", "helper"]
    for number, name in enumerate(names):
        text = f"MINE = {name!r}\ndef as_floats(p): return []\ndef plain(v): return None\nclass Connection: pass\n"
        run(session, f"%%writefile {name}.py\n{text}" if number % 2 else f"open('{name}.py', 'w').write({text!r})")
        run(session, f"import {name}\nassert {name}.MINE == {name!r}")
    run(session, "%time def f(box): return [box.next(), (1, 2.5)]", "import os\ndef g():\n    return os.listdir()")
    assert RemoteFunction(session, "f")(types.SimpleNamespace(exposed=("next",), next=lambda: 3)) == [3, (1, 2.5)]
    assert set(RemoteFunction(session, "g")()) - {"__pycache__"} == {f"{name}.py" for name in names}


def test_a_file_called_like_a_library_is_not_imported(session):
    for name in [*LIBRARIES, "specdec"]:
        run(session, f"open('{name}.py', 'w').write('raise SystemExit')")
    run(session, *(f"import os, {name}\nassert not {name}.__file__.startswith(os.getcwd())" for name in LIBRARIES), TRIED)
    assert not RemoteFunction(session, "f")("specdec")


@pytest.mark.parametrize("name", [*LIBRARIES, "autograder"])
def test_which_both_sides_say(name):
    (said,) = shell.not_run(f"%%writefile {name}.py\nx = 1")
    assert f"not your {name}.py" in said


@pytest.mark.parametrize("first", ["%%writefile helper.py", "%%file -a ./helper.py", "%%writefile data/json.py", "%%writefile json.txt"])
def test_another_file_is_written_without_a_word(first):
    assert shell.not_run(f"{first}\nx = 1") == []


def test_a_file_beside_the_notebook_is_missed_in_one_sentence(session):
    with pytest.raises(core.Elsewhere) as raised:
        run(session, "import helper")
    said = judging._raised(Code("a", "the cell a", ""), raised.value)
    assert said == f"the cell a raised ModuleNotFoundError: No module named 'helper' ({shell.not_there('helper')})"


@pytest.fixture
def jupyter(tmp_path, monkeypatch):
    """A notebook's folder with two helpers, and what its cells were."""
    IPython = pytest.importorskip("IPython")
    for name in ("helper_of_a_student", "another_of_a_student"):
        (tmp_path / f"{name}.py").write_text("")
    package = tmp_path / "package_of_a_student"
    package.mkdir()
    (package / "__init__.py").write_text("")
    cells = []
    history = types.SimpleNamespace(input_hist_raw=cells)
    monkeypatch.setattr(IPython, "get_ipython", lambda: types.SimpleNamespace(history_manager=history))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(notebook, "_warned", set())
    yield cells
    for name in [name for name in sys.modules if name.endswith("_of_a_student")]:
        del sys.modules[name]


def test_the_notebook_says_it_too(jupyter, capsys):
    passing = ("02.accept_or_reject", lambda p, q, u: u * q < p if q else True)
    checks.check(*passing)
    assert "note" not in capsys.readouterr().out
    for name in ("helper_of_a_student", "another_of_a_student", "package_of_a_student"):
        __import__(name)
    jupyter += ["%%writefile another_of_a_student.py\n", "%%writefile json.py\n"]
    checks.check(*passing)
    told = " ".join(capsys.readouterr().out.split())
    assert shell.not_there("helper_of_a_student") in told
    assert "package_of_a_student" in told
    assert "not your json.py" in told
    assert "another_of_a_student" not in told
    checks.check(*passing)
    assert "note" not in capsys.readouterr().out, "it is said once"


def test_what_the_course_keeps_beside_a_notebook_is_no_student_s(monkeypatch):
    assert {"autograder", "specdec"} <= notebook._imported_from(Path(checks.__file__).parents[2])
