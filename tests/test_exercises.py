"""The student notebooks: generated from their sources, nothing else in them, and nothing of the solutions."""

import json
import re

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from autograder import checks, course, generate, zoo

STUB = '# YOUR CODE HERE\nraise NotImplementedError("not written yet")'


@pytest.fixture(scope="session")
def generated():
    return generate.student_notebooks()


def notebook(generated, assignment):
    return nbformat.reads(generated[generate.CHAPTERS / assignment / "exercise.ipynb"], as_version=4)


def secrets(assignment):
    """Lines that only the instructor's side may show: of solutions, and of hidden checks."""
    text = (course.SOLUTIONS / assignment / "exercise.py").read_text(encoding="utf-8")
    regions = re.findall(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n(.*?)### END", text, re.DOTALL)
    return {line.strip() for region in regions for line in region.splitlines() if len(line.strip()) > 20}


def leaks(text, assignment):
    as_json = {line: json.dumps(line, ensure_ascii=False)[1:-1] for line in secrets(assignment)}
    return [line for line, escaped in as_json.items() if line in text or escaped in text]


def test_committed_notebooks_are_what_their_sources_generate(generated):
    assert [str(path) for path in generate.outdated(generated)] == []


@pytest.mark.parametrize("assignment", course.assignments())
def test_what_is_graded_is_the_committed_copy_until_its_source_changes(generated, assignment, tmp_path, monkeypatch):
    course.released.cache_clear()
    monkeypatch.setattr(course, "make_course", lambda *_args, **_kwargs: pytest.fail("made anew, though nothing changed"))
    assert course.released(assignment) == generated[generate.CHAPTERS / assignment / "exercise.ipynb"]
    monkeypatch.undo()
    course.released.cache_clear()
    source = tmp_path / assignment / "exercise.py"
    source.parent.mkdir()
    text = (course.SOLUTIONS / assignment / "exercise.py").read_text(encoding="utf-8")
    source.write_text(text + "\n# %% [markdown]\n# Changed.\n", encoding="utf-8")
    monkeypatch.setattr(course, "SOLUTIONS", tmp_path)
    changed = course.released(assignment)
    course.released.cache_clear()
    assert "Changed." in changed, "a source that was changed must be graded as it is"


def test_generation_is_the_same_from_run_to_run(generated):
    assert generate.student_notebooks() == generated


def test_an_edited_notebook_is_outdated_and_written_again(generated, tmp_path):
    path = tmp_path / "exercise.ipynb"
    text = next(iter(generated.values()))
    assert generate.outdated({path: text}) == [path]
    generate.write({path: text})
    assert generate.outdated({path: text}) == []
    path.write_text(text.replace("Task 1", "Task 2"), encoding="utf-8")
    assert generate.write({path: text}) == [path]


@pytest.mark.parametrize("assignment", course.assignments())
def test_stub_and_solution_differ_in_the_marked_region_only(generated, assignment):
    source, student = course.source_notebook(assignment).cells, notebook(generated, assignment).cells
    assert [cell.id for cell in source] == [cell.id for cell in student]
    for before, after in zip(source, student):
        stubbed = re.sub(
            r"^( *)### BEGIN SOLUTION.*?### END SOLUTION",
            lambda match: "\n".join(match[1] + line for line in STUB.splitlines()),
            before.source,
            flags=re.DOTALL | re.MULTILINE,
        )
        assert re.sub(r"\n?### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", "", stubbed, flags=re.DOTALL) == after.source


@pytest.mark.parametrize("assignment", course.assignments())
def test_no_solution_and_no_hidden_check_is_found_in_chapters(assignment):
    assert len(secrets(assignment)) > 3
    for path in generate.CHAPTERS.rglob("*"):
        if path.is_file() and path.suffix in {".ipynb", ".md", ".py"}:
            assert leaks(path.read_text(encoding="utf-8"), assignment) == [], path


@pytest.mark.parametrize("assignment", course.assignments())
def test_a_planted_solution_would_be_found(generated, assignment):
    assert leaks(course.text(zoo.filled(assignment, notebook(generated, assignment))), assignment)
    hidden = next(line for line in secrets(assignment) if "hidden=True" in line)
    planted = notebook(generated, assignment)
    planted.cells[-1].source += "\n" + hidden
    assert leaks(course.text(planted), assignment) == [hidden]


@pytest.mark.parametrize("assignment", course.assignments())
def test_an_exercise_is_of_a_size_that_a_reader_finishes(generated, assignment):
    cells = notebook(generated, assignment).cells
    assert len(cells) <= 100
    assert sum(len(cell.source.splitlines()) for cell in cells) <= 600
    graded = [cell.metadata.nbgrader.points for cell in cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert sum(graded) == 10
    assert len(graded) >= 3


def errors(executed):
    return [
        (cell.metadata.get("nbgrader", {}).get("grade", False), output)
        for cell in executed.cells
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    ]


@pytest.mark.parametrize("assignment", course.assignments())
def test_the_expected_output_is_what_the_check_says(assignment):
    """Word for word, but for the dots that stand for figures of the day."""
    cells = course.source_notebook(assignment).cells
    text = " ".join(" ".join(cell.source for cell in cells if cell.cell_type == "markdown").split())
    functions = zoo.functions(assignment)
    for name, asked in zoo.checks(assignment).items():
        said = checks.run(name, *(functions[f] for f in asked)).message
        (expected,) = re.findall(rf"`✓ {re.escape(name)}: (.+?)`", text)
        pattern = ".*".join(map(re.escape, expected.split("…")))
        assert re.match(pattern if "…" in expected else pattern + "$", said), f"{name}: {expected!r}, and the check says {said!r}"


@pytest.mark.parametrize("assignment", course.assignments())
def test_the_solved_notebook_runs_from_top_to_bottom(assignment):
    executed = course.source_notebook(assignment)
    NotebookClient(executed, timeout=90, kernel_name="python3").execute()
    for cell in executed.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            assert "✓" in "".join(output.get("text", "") for output in cell.outputs)
        assert not [o for o in cell.get("outputs", []) if o.get("name") == "stderr"]


@pytest.mark.parametrize("assignment", course.assignments())
def test_the_untouched_notebook_fails_with_short_advice(generated, assignment):
    executed = notebook(generated, assignment)
    executed.cells.insert(0, new_code_cell("!true"))
    NotebookClient(executed, timeout=90, kernel_name="python3", allow_errors=True).execute()
    printed = [output.get("text", "") for cell in executed.cells for output in cell.get("outputs", [])]
    assert sum("grading runs no command" in text for text in printed) == 1, "what grading leaves out is said once"
    graded = [output for is_graded, output in errors(executed) if is_graded]
    assert len(graded) == len(zoo.checks(assignment))
    for output in graded:
        assert output.ename == "CheckFailed"
        assert "not written yet" in output.evalue
        assert len("\n".join(output.traceback).splitlines()) < 10
    for _, output in errors(executed):
        assert len("\n".join(output.traceback).splitlines()) < 40
