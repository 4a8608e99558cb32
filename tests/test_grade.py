"""Grading a folder: every submission has its row and its page, whatever state it is in."""

import csv
import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from autograder import course, report, runner, zoo
from autograder.submission import NOTEBOOK, Unreadable, collect, read, rebuild

A = "02-rejection-rule"


@pytest.fixture(scope="module")
def release():
    return nbformat.read(course.ROOT / "chapters" / A / NOTEBOOK, as_version=4)


def hand_in(folder, student, notebook, assignment=A, name=NOTEBOOK):
    path = folder / student / assignment / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook if isinstance(notebook, str) else course.text(notebook), encoding="utf-8")
    return path


def solution(notebook, grade_id):
    return next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


# -- six submissions, through nbgrader ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graded(tmp_path_factory, release):
    """The folder of the instructor's first day: two right ones, two wrong ones, an endless loop, and no notebook."""
    folder, out = tmp_path_factory.mktemp("submitted"), tmp_path_factory.mktemp("graded")
    hand_in(folder, "right", zoo.filled(A, release))
    hand_in(folder, "another-style", zoo.filled(A, release, zoo.case("right", A, "vectorised")))
    for name in ("residual_from_p", "step_no_bonus", "step_endless"):
        hand_in(folder, name, zoo.filled(A, release, zoo.case("wrong", A, name)))
    hand_in(folder, "not-json", "no notebook at all")
    calls = []
    rows = runner.grade(folder, out, runner.Settings(jobs=2), lambda row, total: calls.append((row.student, total)))
    return {row.student: row for row in rows}, out, calls


@pytest.mark.slow
def test_the_marks_are_right(graded):
    rows, _, _ = graded
    assert {student: (row.score, row.max_score, row.status) for student, row in rows.items()} == {
        "right": (10, 10, "graded"),
        "another-style": (10, 10, "graded"),
        "residual_from_p": (3, 10, "graded"),  # accept_or_reject, and the cases in which chance plays no part
        "step_no_bonus": (6, 10, "graded"),  # all but the two checks that look at whole steps
        "step_endless": (4, 10, "timeout"),  # the two functions before it
        "not-json": (0, 10, "unreadable"),
    }


@pytest.mark.slow
def test_the_messages_name_the_mistakes(graded):
    rows, _, _ = graded
    assert rows["right"].message == "every check passed"
    assert "resamples from p" in rows["residual_from_p"].message
    assert "no bonus token" in rows["step_no_bonus"].message
    assert "not finished after" in rows["step_endless"].message
    assert "not JSON" in rows["not-json"].message


@pytest.mark.slow
def test_every_submission_has_a_row_a_page_and_a_grade(graded):
    rows, out, calls = graded
    table = list(csv.DictReader((out / "grades.csv").read_text(encoding="utf-8").splitlines()))
    assert list(table[0]) == ["student", "assignment", "score", "max_score", "status", "message"]
    assert [line["student"] for line in table] == sorted(rows)
    assert len(calls) == 6
    for student in rows:
        page = (out / "feedback" / student / f"{A}.html").read_text(encoding="utf-8")
        assert "HIDDEN TESTS" not in page
        assert "hidden=True" not in page
    assert "resamples from p" in (out / "feedback" / "residual_from_p" / f"{A}.html").read_text(encoding="utf-8")
    with report.Gradebook(f"sqlite:///{out / 'course' / 'gradebook.db'}", "specdec") as gradebook:
        scores = {s.student.id: s.score for s in gradebook.assignment_submissions(A)}
        assert not any(s.needs_manual_grade for s in gradebook.assignment_submissions(A))
    assert scores == {student: row.score for student, row in rows.items()}


@pytest.mark.slow
def test_a_dead_kernel_keeps_the_points_before_it_and_passes_nothing_after_it(tmp_path, release):
    notebook = zoo.filled(A, release)
    solution(notebook, "spec_step").source = "import os\nos._exit(0)"
    hand_in(tmp_path / "in", "exits", notebook)
    hand_in(tmp_path / "in", "no-such-assignment", "{}", "03-acceptance")
    rows = runner.grade(tmp_path / "in", tmp_path / "out", runner.Settings(jobs=1))
    assert [(row.student, row.score, row.status) for row in rows] == [("exits", 4, "crashed"), ("no-such-assignment", 0, "unknown")]
    again = runner.grade(tmp_path / "in", tmp_path / "out", runner.Settings(jobs=1))  # over the first run's results
    assert again == rows


# -- submissions as they really come, without nbgrader -----------------------------------------------------------------


def test_everything_in_the_folder_has_a_row(tmp_path, release):
    hand_in(tmp_path, "ada", release)
    hand_in(tmp_path, "ben", release, name="my solution.ipynb")
    hand_in(tmp_path, "cleo", release, assignment="02-rejection_rule")
    (tmp_path / "dora" / A).mkdir(parents=True)
    (tmp_path / "emil").mkdir()
    (tmp_path / "fred.ipynb").write_text("{}")
    hand_in(tmp_path, "gina", release, name="a.ipynb")
    hand_in(tmp_path, "gina", release, name="b.ipynb")
    (tmp_path / ".DS_Store").write_text("")
    found = {s.student: (s.status, " ".join(s.notes)) for s in collect(tmp_path, course.assignments())}
    assert found["ada"] == ("", "")
    assert found["ben"] == ("", "my solution.ipynb was graded as exercise.ipynb")
    assert found["cleo"][0] == "unknown"
    assert "did you mean 02-rejection-rule?" in found["cleo"][1]
    assert found["dora"][0] == "missing"
    assert found["emil"][0] == "empty"
    assert found["fred"][0] == "misplaced"
    assert found["gina"] == ("missing", "none of 2 notebooks is called exercise.ipynb")
    assert len(found) == 7


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("print('hello')", "not JSON"),
        ("[1, 2]", "no list of cells"),
        ('{"cells": 3}', "no list of cells"),
        ('{"cells": [3], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "no list of cells"),
        ('{"worksheets": [{}], "nbformat": 3}', "no list of cells"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_notebook_is_said_to_be_none(tmp_path, text, why):
    path = hand_in(tmp_path, "x", text)
    with pytest.raises(Unreadable, match=why):
        read(path)


def rebuilt(tmp_path, notebook, release):
    return rebuild(read(hand_in(tmp_path, "x", notebook)), release)


def graded_cells(notebook):
    return [(cell.metadata.nbgrader.grade_id, cell.source) for cell in notebook.cells if cell.metadata.get("nbgrader")]


def without_metadata(notebook):
    plain = json.loads(course.text(notebook))
    for cell in plain["cells"]:
        cell["metadata"] = {}
        cell.pop("id")
    return json.dumps({**plain, "nbformat_minor": 4, "metadata": {}})


def edited_check(notebook):
    solution(notebook, "check_exact_law").source = "print('passed')"
    solution(notebook, "check_exact_law").metadata.nbgrader.points = 1000
    return notebook


def deleted_check(notebook):
    notebook.cells.remove(solution(notebook, "check_exact_law"))
    return notebook


def duplicated_cells(notebook):
    notebook.cells += [cell for cell in notebook.cells if cell.metadata.get("nbgrader")]
    return json.dumps(notebook)  # nbformat would give the copies new ids


def large_outputs(notebook):
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="x" * 5_000_000)]
    return notebook


@pytest.mark.parametrize("change", [without_metadata, edited_check, deleted_check, duplicated_cells, large_outputs])
def test_a_changed_notebook_is_graded_as_the_original(tmp_path, release, change):
    filled = zoo.filled(A, release)
    expected = graded_cells(filled)
    notebook, notes = rebuilt(tmp_path, change(filled), release)
    assert graded_cells(notebook) == expected
    assert notes == []
    assert len(course.text(notebook)) < 100_000
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


def test_cells_that_the_student_added_stay_where_they_stood(tmp_path, release):
    filled = zoo.filled(A, release)
    place = filled.cells.index(solution(filled, "residual_dist"))
    filled.cells.insert(place, new_code_cell("def helper():\n    return 1", id="mine"))
    notebook, _ = rebuilt(tmp_path, filled, release)
    sources = [cell.source for cell in notebook.cells]
    assert sources.index("def helper():\n    return 1") < sources.index(solution(notebook, "residual_dist").source)


def test_a_deleted_solution_is_the_stub_again_and_the_row_says_so(tmp_path, release):
    filled = zoo.filled(A, release)
    filled.cells.remove(solution(filled, "residual_dist"))
    notebook, notes = rebuilt(tmp_path, filled, release)
    assert "NotImplementedError" in solution(notebook, "residual_dist").source
    assert notes == ["the cell residual_dist is missing"]


def test_a_notebook_of_format_3_is_read(tmp_path, release):
    filled = zoo.filled(A, release)
    old = [
        {"cell_type": "code", "input": cell.source.splitlines(keepends=True), "metadata": cell.metadata}
        if cell.cell_type == "code"
        else {"cell_type": "markdown", "source": cell.source, "metadata": {}}
        for cell in filled.cells
    ]
    notebook, _ = rebuilt(tmp_path, json.dumps({"nbformat": 3, "worksheets": [{"cells": old}], "metadata": {}}), release)
    assert graded_cells(notebook) == graded_cells(zoo.filled(A, release))


def test_a_page_of_our_own_escapes_what_students_wrote():
    row = report.Row("<b>x</b>", A, 0, 10, "unreadable", "<script>alert(1)</script>")
    assert "<script>" not in report.page(row)
    assert "<b>x</b>" not in report.page(row)


def test_grades_are_written_whole_and_sorted(tmp_path):
    rows = [report.Row("b", A, 2.5, 10, "graded", "two\nlines, and a comma"), report.Row("a", A, 0, 10, "missing", "")]
    report.write_grades(rows, tmp_path / "grades.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["grades.csv"]
    table = list(csv.reader((tmp_path / "grades.csv").read_text(encoding="utf-8").splitlines()))
    assert table[1:] == [["a", A, "0", "10", "missing", ""], ["b", A, "2.5", "10", "graded", "two lines, and a comma"]]


def test_every_status_that_a_row_can_have_is_explained():
    guide = (course.ROOT / "appendices" / "instructor.md").read_text(encoding="utf-8")
    assert [status for status in report.STATUS if f"`{status}`" not in guide] == []
