"""What a grading run leaves behind: the same from the same marks, complete, escaped, and read by the tools it is meant for."""

import csv
import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from sqlalchemy import URL, create_engine, inspect, text

from autograder import course, zoo
from autograder.intake.submission import NOTEBOOK, Submission
from autograder.marks import CheckMark, Mark
from autograder.outputs import gradebook, gradescope, pages, report, tables, writing
from autograder.outputs.folders import folders

A = "02-rejection-rule"
CELLS = {"accept_or_reject": 2, "residual_dist": 2, "spec_step": 1, "exact_law": 3, "equivalence": 2}
LAW = {"kind": "law", "right": {(0, 1): 0.5, (1,): 0.5}, "student": {(0,): 1.0}}
EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(2)>\x1b[31m'


def a_mark(student="ada", lost=(), status="graded", **changes):
    """A mark of chapter 02 with full points but for `lost`: {check: (points, message)}."""
    lost = dict(lost)
    checks = []
    for name, worth in CELLS.items():
        points, message = lost.get(name, (worth, "fine"))
        told = {} if name not in lost else {"expected": "1", "got": "2", "hint": "look\nagain", "picture": LAW, "seed": 12345}
        checks.append(CheckMark(f"02.{name}", f"check_{name}", points, worth, message, **told))
    return Mark(student, A, status, tuple(checks), **changes)


RIGHT, PARTLY = (
    a_mark("ada"),
    a_mark("ben", {"exact_law": (1.5, "no bonus token after 3 acceptances"), "equivalence": (0, "TV = 0.31")}),
)
NOT_READ = a_mark("cleo", dict.fromkeys(CELLS, (0.0, "nothing was run")), "unreadable", notes=("the file is not JSON",))
STRANGER = Mark("dora", "02-rejection_rule", "unknown", (), ("did you mean 02-rejection-rule?",))
MARKS = [NOT_READ, PARTLY, RIGHT, STRANGER]
SCORES = {"ada": 10.0, "ben": 6.5, "cleo": 0.0}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A course folder with an empty gradebook, and the released notebook. To be copied: nbgrader takes seconds to make one."""
    folder = tmp_path_factory.mktemp("template") / "course"
    return folder, course.make_course(folder, [A])


@pytest.fixture(scope="module")
def submissions(tmp_path_factory, template):
    folder = tmp_path_factory.mktemp("submitted")
    paths = {}
    for student, content in {
        "ada": course.text(zoo.filled(A, template[1][A])),
        "ben": course.text(template[1][A]),
        "cleo": "no",
    }.items():
        paths[student] = folder / student / A / NOTEBOOK
        paths[student].parent.mkdir(parents=True)
        paths[student].write_text(content, encoding="utf-8")
    times = {"ada": "2026-02-03 10:11:12 UTC", "ben": "no time"}
    return [Submission(student, A, path, timestamp=times.get(student, "")) for student, path in paths.items()]


@pytest.fixture(scope="module")
def written(tmp_path_factory, template, submissions):
    out = tmp_path_factory.mktemp("graded")
    shutil.copytree(template[0], out / "course")
    writing.everything(MARKS, out, template[1], submissions)
    return out


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def rows_of(db_url):
    """Every row of every table of a database, ids and all."""
    engine = create_engine(db_url)
    with engine.connect() as connection:
        names = sorted(inspect(engine).get_table_names())
        rows = {name: sorted(map(repr, connection.execute(text(f'SELECT * FROM "{name}"')))) for name in names}
    engine.dispose()
    return rows


def scores_in(db_url):
    with Gradebook(db_url, "specdec") as book:
        return {s.student.id: (s.score, s.max_score, s.needs_manual_grade) for s in book.assignment_submissions(A)}


# -- tables ------------------------------------------------------------------------------------------------------------


def test_grades_are_sorted_and_say_what_happened():
    table = list(csv.DictReader(io.StringIO(tables.grades(MARKS))))
    assert [(row["student"], row["score"], row["max_score"], row["status"]) for row in table] == [
        ("ada", "10", "10", "graded"), ("ben", "6.5", "10", "graded"), ("cleo", "0", "10", "unreadable"), ("dora", "0", "0", "unknown"),
    ]  # fmt: skip
    assert table[1]["message"] == "02.exact_law: no bonus token after 3 acceptances; 02.equivalence: TV = 0.31"
    assert tables.grades(MARKS) == tables.grades(MARKS[::-1]), "the order of the marks must not matter"


def test_a_spreadsheet_takes_no_name_for_a_formula():
    for name in ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "  =1"):
        row = next(csv.DictReader(io.StringIO(tables.grades([dataclasses.replace(RIGHT, student=name)]))))
        assert row["student"].startswith("'")
    assert "\x1b" not in tables.grades([dataclasses.replace(RIGHT, notes=(EVIL,))])


def test_canvas_gets_its_own_format():
    lines = tables.canvas(MARKS, {"ada": "1234"}).splitlines()
    assert lines == [
        f"Student,ID,SIS User ID,SIS Login ID,Section,{A}",
        "    Points Possible,,,,,10",
        "ada,1234,,,,10",
        "ben,,,ben,,6.5",
        "cleo,,,cleo,,0",
    ]


OURS = a_mark("ben", dict.fromkeys(CELLS, (0.0, "")), "error", notes=("the judge broke",))


def test_a_fault_of_the_grader_gives_nobody_a_score():
    """No table may hold a 0 that a teacher would import; what an earlier run gave stays."""
    assert tables.canvas([RIGHT, OURS], {}).splitlines()[2:] == ["ada,,,ada,,10", "ben,,,ben,,"]
    assert tables.canvas([RIGHT, OURS], {}, ROSTER).splitlines()[3] == '"Hopper, Grace",77,u2,ben,S1,'
    row = next(iter(csv.DictReader(io.StringIO(tables.grades([OURS])))))
    assert (row["score"], row["max_score"], row["status"]) == ("", "10", "error")
    assert json.loads(gradescope.results(OURS)).keys().isdisjoint({"score", "tests"})
    assert report.reports([RIGHT, OURS], pictures=False)[0].mean == 10.0, "a mark that was never made is no part of the mean"


def test_the_gradebook_keeps_what_it_had_where_the_grader_failed(tmp_path, template):
    shutil.copytree(template[0], tmp_path / "course")
    database = f"sqlite:///{tmp_path / 'course' / 'gradebook.db'}"
    for before, expected in (([PARTLY], 6.5), ([], None)):
        for mark in (*before, OURS):
            gradebook.write([mark], database, {"ben": "ben"})
        (score, _, by_hand), own = scores_in(database)["ben"], list(grades_of(database, "ben"))
        assert by_hand, "a person must be asked to look"
        assert (score == expected) if expected else own.count(None) == len(own)
        gradebook.write([dataclasses.replace(RIGHT, student="ben")], database, {"ben": "ben"})
        assert scores_in(database)["ben"] == (10.0, 10.0, False)
        shutil.rmtree(tmp_path / "course")
        shutil.copytree(template[0], tmp_path / "course")


def grades_of(database, student):
    with Gradebook(database, "specdec") as book:
        return [
            grade.auto_score for grade in book.find_submission_notebook("exercise", A, student).grades if grade.cell.max_score
        ]


ROSTER = """\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,02-rejection-rule (987),Final Score
    Points Possible,,,,,10,(read only)
"Lovelace, Ada",1234,u1,al1,S1,,
"Hopper, Grace",77,u2,ben,S1,3,
"Curie, Marie",78,u3,mc,S1,4,
"""


def test_a_canvas_export_gives_the_rows_and_the_titles():
    for roster in (ROSTER, re.sub(r",(?! )", ";", ROSTER)):
        lines = tables.canvas(MARKS, {"ada": "1234"}, roster).splitlines()
        assert lines[0].endswith(",02-rejection-rule (987)"), "Canvas knows the assignment by the number in its title"
        assert lines[2:] == [
            '"Lovelace, Ada",1234,u1,al1,S1,10', '"Hopper, Grace",77,u2,ben,S1,6.5', '"Curie, Marie",78,u3,mc,S1,', "cleo,,,cleo,,0",
        ]  # fmt: skip


# -- pages -------------------------------------------------------------------------------------------------------------


def test_a_page_tells_everything_and_loads_nothing(written):
    page = (written / "feedback" / "ben" / f"{A}.html").read_text(encoding="utf-8")
    for told in (
        "6.5 of 10",
        "no bonus token after 3 acceptances",
        "expected",
        "look\nagain",
        "1.5 of 3",
        "data:image/png;base64,",
    ):
        assert told in page, f"the page does not say {told!r}"
    assert 'os.environ["SPECDEC_GRADING_SEED"] = "12345"' in page.replace("&#34;", '"')
    assert 'check("02.exact_law", spec_step, hidden=True)' in page.replace("&#34;", '"'), (
        "the page must say how to repeat the check"
    )
    assert not re.search(r'(src|href)="(?!data:)', page), "a page must load nothing from elsewhere"
    assert "HIDDEN TESTS" not in page
    assert "prefers-color-scheme: dark" in page


def test_what_students_wrote_is_escaped_everywhere():
    check = CheckMark("02.a", "a", 0, 1, EVIL, EVIL, EVIL, EVIL, EVIL, seed=1)
    mark = Mark(EVIL, A, "graded", (check,), (EVIL,))
    for page in (
        pages.page(mark, {"a": {"error": EVIL}}),
        report.page([mark]),
        pages.page(dataclasses.replace(mark, assignment=EVIL), {}),
    ):
        assert "<script" not in page
        assert "<img src=x" not in page
        assert "\x1b" not in page


def test_a_picture_that_cannot_be_drawn_costs_only_the_picture(tmp_path, template):
    bad = [{"kind": "no such kind"}, {"kind": "law", "right": 3, "student": {}}, {"kind": "curves"}, {}]
    checks = tuple(
        CheckMark(f"02.{i}", f"check_{i}", 0, 1, "named mistake", picture=picture or {"x": 1}) for i, picture in enumerate(bad)
    )
    mark = Mark("ada", A, "graded", checks)
    page = pages.page(mark, pages.pictures(mark))
    assert page.count("There is no picture here") == len(bad)
    assert page.count("named mistake") == len(bad)


def test_a_page_is_made_again_only_when_it_would_change(tmp_path, template):
    path, stamp = tmp_path / "x.html", pages.stamp(PARTLY, template[1][A])
    assert not pages.is_fresh(path, stamp)
    path.write_text(pages.page(PARTLY, {}, template[1][A], stamp), encoding="utf-8")
    assert pages.is_fresh(path, stamp)
    slower = dataclasses.replace(PARTLY, checks=tuple(dataclasses.replace(check, seconds=9.0) for check in PARTLY.checks))
    assert pages.stamp(slower, template[1][A]) == stamp, "the time that a check took is not on the page"
    assert pages.stamp(RIGHT, template[1][A]) != stamp


# -- the whole, and nbgrader -------------------------------------------------------------------------------------------


def test_everything_is_there_and_the_second_time_changes_nothing(written, template, submissions):
    before = contents(written)
    names = {str(path) for path in before}
    assert {"grades.csv", "canvas.csv", "class.html", "class.csv"} <= names
    assert {f"feedback/{student}/{A}.html" for student in SCORES} <= names
    assert "feedback/dora/02-rejection_rule.html" in names
    assert not [name for name in names if ".partial" in name]
    database = f"sqlite:///{written / 'course' / 'gradebook.db'}"
    rows = rows_of(database)
    writing.everything(MARKS[::-1], written, template[1], submissions[::-1])
    assert rows_of(database) == rows, "writing the same marks again must change nothing in the gradebook"
    assert {k: v for k, v in contents(written).items() if k.suffix != ".db"} == {
        k: v for k, v in before.items() if k.suffix != ".db"
    }


def test_the_gradebook_has_partial_credit_and_nothing_to_grade_by_hand(written):
    database = f"sqlite:///{written / 'course' / 'gradebook.db'}"
    assert scores_in(database) == {student: (score, 10.0, False) for student, score in SCORES.items()}
    with Gradebook(database, "specdec") as book:
        assert book.find_grade("check_exact_law", "exercise", A, "ben").auto_score == 1.5
        assert str(book.find_submission(A, "ada").timestamp) == "2026-02-03 10:11:12"
        assert book.find_submission(A, "ben").timestamp is None, "what is no time must not stop the gradebook"


def test_a_grade_by_hand_stays(tmp_path, template):
    shutil.copytree(template[0], tmp_path / "course")
    database = f"sqlite:///{tmp_path / 'course' / 'gradebook.db'}"
    gradebook.write([PARTLY], database, {"ben": "ben"})
    with Gradebook(database, "specdec") as book:
        book.find_grade("check_exact_law", "exercise", A, "ben").manual_score = 3.0
        book.db.commit()
    gradebook.write([PARTLY], database, {"ben": "ben"})
    assert scores_in(database)["ben"][0] == 8.0, "a manual score counts more than the grader's"


def test_the_notebooks_are_what_was_handed_in_and_what_was_found(written, submissions):
    for submission in submissions:
        copy = written / "course" / "submitted" / submission.student / A / NOTEBOOK
        assert copy.read_bytes() == submission.path.read_bytes()
    notebook = nbformat.read(written / "course" / "autograded" / "ben" / A / NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    kinds = {
        cell.metadata.nbgrader.grade_id: [output.output_type for output in cell.outputs]
        for cell in notebook.cells
        if cell.metadata.get("nbgrader", {}).get("grade")
    }
    assert kinds["check_exact_law"] == ["display_data", "error"]
    assert kinds["check_residual_dist"] == ["stream"]


def nbgrader(*arguments, folder):
    command = [str(Path(sys.executable).parent / "nbgrader"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}"


@pytest.mark.slow
def test_stock_nbgrader_exports_and_gives_feedback(written, tmp_path):
    folder = tmp_path / "course"
    shutil.copytree(written / "course", folder)
    nbgrader("export", "--to", str(tmp_path / "export.csv"), folder=folder)
    with (tmp_path / "export.csv").open(encoding="utf-8") as file:
        table = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    assert table == {student: (score, 10.0) for student, score in SCORES.items()}
    nbgrader("generate_feedback", A, folder=folder)
    for student, score in SCORES.items():
        page = (folder / "feedback" / student / A / "exercise.html").read_text(encoding="utf-8")
        assert f"Score: {score} / 10.0" in page, f"nbgrader's feedback for {student} has another score"
    assert "no bonus token after 3 acceptances" in (folder / "feedback" / "ben" / A / "exercise.html").read_text(
        encoding="utf-8"
    )


ODD = ["ada", "Ada", "a,b", "new\nline", "\udcff", " lead", "x" * 255, "名" * 85, "..", "-rf", "a/b"]


def test_any_name_is_one_folder_and_one_student(tmp_path, template):
    names = folders(ODD)
    assert len({name.casefold() for name in names.values()}) == len(ODD), "two students share a folder"
    assert all(
        len(name.encode()) <= 220 and len(name) <= 128 and "/" not in name and name.isprintable() for name in names.values()
    )
    assert names["-rf"] == "-rf"
    shutil.copytree(template[0], tmp_path / "course")
    marks = [dataclasses.replace(RIGHT, student=student) for student in ODD]
    writing.everything(marks, tmp_path, template[1])
    assert len(scores_in(f"sqlite:///{tmp_path / 'course' / 'gradebook.db'}")) == len(ODD)
    assert {path.name for path in (tmp_path / "feedback").iterdir()} == set(names.values())
    assert len((tmp_path / "grades.csv").read_text(encoding="utf-8").splitlines()) == len(ODD) + 1


@pytest.mark.slow
def test_several_processes_write_the_same(tmp_path, template):
    marks = [dataclasses.replace(mark, student=f"{mark.student}{i}") for i in range(5) for mark in (RIGHT, PARTLY)]
    for jobs in (1, 2):
        shutil.copytree(template[0], tmp_path / str(jobs) / "course")
        writing.everything(marks, tmp_path / str(jobs), template[1], jobs=jobs)
    one, two = contents(tmp_path / "1"), contents(tmp_path / "2")
    database = Path("course/gradebook.db")  # its ids are drawn
    assert {**one, database: b""} == {**two, database: b""}


def test_three_hundred_submissions_are_written_in_seconds(tmp_path, template):
    shutil.copytree(template[0], tmp_path / "course")
    database = f"sqlite:///{tmp_path / 'course' / 'gradebook.db'}"
    marks = [dataclasses.replace(PARTLY, student=f"s{i:03d}") for i in range(300)]
    start = time.process_time()
    gradebook.write(marks, database, {mark.student: mark.student for mark in marks})
    assert time.process_time() - start < 20, "the gradebook must be written in one transaction, not cell by cell"
    assert set(scores_in(database).values()) == {(6.5, 10.0, False)}


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


def as_nobody():
    """Arguments of a subprocess that may not be root's: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    import pwd

    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        except KeyError:
            continue
    pytest.skip("needs a user other than root to run PostgreSQL: neither postgres nor nobody is there")


@pytest.fixture(scope="module")
def postgres():
    """The db_url of a server of our own, in a temporary folder, that listens on nothing but a socket there."""
    import tempfile

    found = [shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    programs = next((Path(path).parent for path in found if path), None)
    if programs is None:
        pytest.skip(
            "needs PostgreSQL, of which there is none here: sudo apt install postgresql (scripts/install-system.sh does it)"
        )
    someone = as_nobody()
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # short: a socket's path has at most 107 characters
        if someone:
            os.chown(folder, someone["user"], someone["group"])
        data, quiet = f"{folder}/data", {"stdout": subprocess.DEVNULL, "cwd": folder, "check": True, "timeout": 300, **someone}
        subprocess.run([programs / "initdb", "-D", data, "-U", "grader", "--auth=trust", "--no-sync", "-E", "UTF8"], **quiet)
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        control = [programs / "pg_ctl", "-D", data, "-w", "-t", "240"]
        subprocess.run([*control, "-l", f"{folder}/log", "-o", options, "start"], **quiet)
        try:
            url = URL.create("postgresql+psycopg", "grader", database="postgres", query={"host": folder})
            yield url.render_as_string(hide_password=False)
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **quiet)


@pytest.mark.slow
def test_the_gradebook_may_be_in_postgresql(postgres, tmp_path, submissions):
    released = course.make_course(tmp_path / "course", [A], db_url=postgres)
    marks = [*MARKS, *(dataclasses.replace(RIGHT, student=student) for student in ODD[1:])]
    for _ in range(2):
        writing.everything(marks, tmp_path, released, submissions, db_url=postgres)
        rows = rows_of(postgres)
    writing.everything(marks, tmp_path, released, submissions, db_url=postgres)
    assert rows_of(postgres) == rows
    found = scores_in(postgres)
    assert (found["ben"][0], found["cleo"][0]) == (6.5, 0.0)
    assert len(found) == len(SCORES) + len(ODD) - 1
    assert not (tmp_path / "course" / "gradebook.db").exists(), "with a db_url there must be no second gradebook"


# -- class report, Gradescope ------------------------------------------------------------------------------------------


def test_the_same_mistake_with_other_numbers_is_one_mistake():
    told = [
        "no bonus token after 3 acceptances",
        "no bonus token after 12 acceptances",
        "TV = 0.31 (1, 2, 3)",
        "TV = 4e-3 (1, 2)",
    ]
    marks = [a_mark(f"s{i}", {"exact_law": (0, message)}) for i, message in enumerate([*told, *3 * ["resamples from p"]])]
    (found,) = report.reports([*marks, RIGHT, NOT_READ], pictures=False)
    assert [(m.students, m.message) for m in found.mistakes if m.check == "02.exact_law"] == [
        (3, "resamples from p"), (2, "TV = … (…)"), (2, "no bonus token after … acceptances"), (1, "not run: unreadable"),
    ]  # fmt: skip
    task = next(task for task in found.tasks if task.name == "02.exact_law")
    assert (task.full, task.part, task.none) == (1, 0, 8)
    table = list(csv.DictReader(io.StringIO(report.table([*marks, RIGHT, NOT_READ]))))
    assert sum(int(row["students"]) for row in table if row["check"] == "02.exact_law") == 9, "every student is in one row"


def test_the_class_report_has_a_picture_and_every_task():
    page = report.page(MARKS)
    assert "data:image/png;base64," in page
    assert all(f"02.{name}" in page for name in CELLS)
    assert "mean 5.50, median 6.5 of 10 points" in page
    assert "nothing to report" in report.page([STRANGER])


def test_gradescope_reads_the_result():
    result = json.loads(gradescope.results(PARTLY))
    assert result["score"] == 6.5
    assert [(t["name"], t["score"], t["max_score"], t["status"]) for t in result["tests"]][2:4] == [
        ("02.spec_step", 1, 1, "passed"), ("02.exact_law", 1.5, 3, "failed"),
    ]  # fmt: skip
    assert "no bonus token" in result["tests"][3]["output"]
    assert all(test["visibility"] == "visible" for test in result["tests"])
    assert "not JSON" in json.loads(gradescope.results(NOT_READ))["output"]


def test_a_fault_of_the_grader_is_no_part_of_the_class_report_but_counted():
    (before,), (after,) = report.reports(MARKS, pictures=False), report.reports([*MARKS, OURS], pictures=False)
    assert after == dataclasses.replace(before, statuses={**before.statuses, "error": 1})
    assert "1 × error" in report.page([OURS])
