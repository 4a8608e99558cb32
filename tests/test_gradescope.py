"""Gradescope's zip, run here as Gradescope runs it: unpacked into a clean folder, with a submission beside it."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from autograder import course, gradescope, zoo
from autograder.intake.submission import NOTEBOOK
from autograder.judging import judge, sandbox
from autograder.marks import CheckMark

A = "02-rejection-rule"
REAL_JUDGE = Path(judge.__file__).relative_to(course.ROOT)
FAKE_JUDGE = """
class Judge:
    def __init__(self, settings):
        pass
    def close(self):
        pass
    def judge(self, job):
        text = "".join(cell.source for cell in job.cells)
        if "raise RuntimeError" in text:
            raise RuntimeError("the judge broke")
        if "exit()" in text:
            import os
            os._exit(3)
        return job.mark("graded", (CheckMark("02.a", "check_a", 1.5, 2, f"seed {job.seed}"),))
"""


def notebook(source="pass"):
    return json.dumps({"cells": [{"cell_type": "code", "source": source}]})


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("zip") / "autograder.zip"
    gradescope.build(A, path, secret="s3cret", pip_args="--prefer-binary -q")
    return path


@pytest.fixture
def container(tmp_path, archive):
    """/autograder as Gradescope lays it out, with this environment in place of the one that setup.sh makes, and a fake judge."""
    root = tmp_path / "autograder"
    for folder in ("source", "submission", "results"):
        (root / folder).mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(archive), str(root / "source")], check=True)
    shutil.copy(root / "source" / "run_autograder", root)
    (root / "venv").symlink_to(Path(sys.executable).parents[1])
    with (root / "source" / REAL_JUDGE).open("a") as file:
        file.write(FAKE_JUDGE)
    (root / "submission_metadata.json").write_text('{"users": [{"email": "ada@example.org", "name": "Ada"}]}')
    return root


def run(root, **environment):
    environment = {**os.environ, "AUTOGRADER_ROOT": str(root), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(["bash", str(root / "run_autograder")], env=environment, capture_output=True, text=True, timeout=300)
    return json.loads((root / "results" / "results.json").read_text(encoding="utf-8")), done


def submit(root, text=notebook(), name=NOTEBOOK):
    path = root / "submission" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_the_zip_has_the_scripts_at_its_root_and_no_solution(archive):
    with zipfile.ZipFile(archive) as content:
        names = content.namelist()
        modes = {name: content.getinfo(name).external_attr >> 16 & 0o777 for name in names}
        texts = {name: content.read(name) for name in names}
    assert {"setup.sh", "run_autograder", "pyproject.toml", "constraints.txt", f"autograder/released/{A}.ipynb"} <= set(names)
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert modes[gradescope.SECRET] == 0o600
    assert not [name for name in names if name.startswith(("solutions/", "autograder/zoo/", "tests/")) or "__pycache__" in name]
    solution = next(cell.source for cell in course.source_notebook(A).cells if "BEGIN SOLUTION" in cell.source)
    line = solution.split("### BEGIN SOLUTION\n")[1].splitlines()[0].encode()
    assert sum(map(len, texts.values())) < 5e6, "Gradescope copies the zip for every submission; leave out what no check needs"
    assert not [name for name, text in texts.items() if name.endswith(".ipynb") and line in text], "the zip must not hold a solution"
    assert b"--prefer-binary -q" in texts["setup.sh"]
    assert A.encode() in texts["run_autograder"]


def test_the_same_project_makes_the_same_zip(archive, tmp_path):
    again = tmp_path / "again.zip"
    gradescope.build(A, again, secret="s3cret", pip_args="--prefer-binary -q")
    assert again.read_bytes() == archive.read_bytes()


def test_an_unknown_assignment_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=f"there are .*{A}"):
        gradescope.build("02-rejection", tmp_path / "x.zip")


def test_the_scripts_are_valid_shell(archive, tmp_path):
    with zipfile.ZipFile(archive) as content:
        for name in gradescope.SCRIPTS:
            done = subprocess.run(["bash", "-n"], input=content.read(name), capture_output=True)
            assert done.returncode == 0, f"{name}: {done.stderr.decode()}"


def test_a_submission_is_graded_in_a_clean_folder(container):
    submit(container)
    result, done = run(container)
    assert result["score"] == 1.5, done.stderr
    assert [test["name"] for test in result["tests"]] == ["02.a"]
    seed = judge.Exercise(A, judge.released(A), "s3cret").job("ada@example.org", notebook().encode()).seed
    assert f"seed {seed}" in result["tests"][0]["output"], "the seeds must be made from the secret of the zip"
    assert "ada@example.org" in done.stdout


def test_what_a_student_must_not_read_is_closed(container):
    submit(container)
    run(container)
    closed = ["results", "submission"]
    closed += [f"source/{name}" for name in ("secret", "specdec", "autograder/released", "autograder/checks", REAL_JUDGE)]
    assert {name: (container / name).stat().st_mode & 0o077 for name in closed} == dict.fromkeys(closed, 0)
    assert (container / "source" / "autograder" / "inside" / "wire.py").stat().st_mode & 0o004, "the student's side must find its code"


@pytest.mark.parametrize(
    ("files", "status", "told"),
    [
        ({}, "missing", "there is no notebook"),
        ({"a.ipynb": "{}", "b.ipynb": "{}"}, "missing", "none of 2 notebooks"),
        ({"exercise.ipynb": "{}"}, "unreadable", "no list of cells"),
        ({"exercise.ipynb": notebook("raise RuntimeError")}, "error", "nothing is the student's fault"),
        ({f"{A}/my work.ipynb": notebook()}, "graded", "my work.ipynb was graded as exercise.ipynb"),
    ],
)
def test_there_is_always_a_result(files, status, told, tmp_path, monkeypatch):
    fake = {"CheckMark": CheckMark}
    exec(FAKE_JUDGE, fake)
    monkeypatch.setattr(judge, "Judge", fake["Judge"])
    (tmp_path / "submission").mkdir()
    for name, text in files.items():
        submit(tmp_path, text, name)
    mark = gradescope.run(A, tmp_path / "submission", tmp_path / "results" / "results.json")
    result = json.loads((tmp_path / "results" / "results.json").read_text(encoding="utf-8"))
    assert mark.status == status
    assert told in result["output"]
    if status == "error":
        assert not {"score", "tests"} & set(result), "a fault of ours must not become a mark: Gradescope gives none then"
    else:
        assert result["score"] == mark.score
        assert sum(test["max_score"] for test in result["tests"]) == (2 if status == "graded" else 10), "the maximum is the exercise's"
    assert "the judge broke" not in json.dumps(result), "what broke is the instructor's to read"


def test_a_grader_that_dies_leaves_a_result(container):
    submit(container, notebook("exit()"))
    result, _ = run(container)
    assert "score" not in result
    assert "Nothing is your fault" in result["output"]


SPY = """
def spy():
    for name, mode in [("source/secret", "r"), ("source/autograder/checks/core.py", "r"), ("results/results.json", "w"), ("evil", "w")]:
        try:
            open("{root}/" + name, mode)
            print("OPENED", name)
        except Exception as error:
            print(type(error).__name__)

"""


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, as in Gradescope's container: the student's code runs as another user")
@pytest.mark.skipif(not sandbox.open_to_all(), reason="needs a Python that other users may read; this one lies in a closed folder")
def test_the_real_judge_where_bubblewrap_cannot_run(container, tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)  # pytest's folders are root's alone, Gradescope's are not
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").write_text("#!/bin/sh\necho 'no user namespaces' >&2; exit 1\n")
    (tmp_path / "bin" / "bwrap").chmod(0o755)
    shutil.copy(course.ROOT / REAL_JUDGE, container / "source" / REAL_JUDGE)
    release = nbformat.read(course.RELEASED / f"{A}.ipynb", as_version=4)
    notebook = zoo.filled(A, release)
    solution = next(cell for cell in notebook.cells if cell.id == "accept-or-reject")
    solution.source = SPY.format(root=str(container)) + solution.source.replace("    return", "    spy()\n    return")
    submit(container, course.text(notebook))
    result, done = run(container, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert result["score"] == 10, f"{result}\n{done.stdout}\n{done.stderr}"
    told = json.dumps(result)
    assert told.count("PermissionError") >= 4, f"the student's code must be kept from the secret, the checks and the result:\n{told}"
    assert "OPENED" not in told
