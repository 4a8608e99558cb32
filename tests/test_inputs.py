"""Submissions as they really come: every case of the table in `autograder/cases.py` is made here, and has the outcome that it says."""

import ast
import json
import os
import stat
import time
import zipfile
from graphlib import TopologicalSorter

import nbformat
import pytest

from autograder import cases, course, zoo
from autograder.intake import canvas, reading
from autograder.intake.folders import collect
from autograder.intake.reading import Refused, Unreadable, read
from autograder.intake.rebuilding import rebuild
from autograder.intake.submission import NOTEBOOK

A, B = "02-rejection-rule", "04-speedup"
KNOWN = [A, B]
RELEASE = nbformat.read(course.ROOT / "chapters" / A / NOTEBOOK, as_version=4)
RIGHT = course.text(zoo.filled(A, RELEASE))


def put(folder, name, content=RIGHT):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def hand_in(folder, content, name=f"ada/{A}/{NOTEBOOK}"):
    put(folder, name, content)
    return folder


def changed(change):
    """A case whose notebook is the right one, changed."""

    def make(folder):
        plain = json.loads(RIGHT)
        change(plain["cells"])
        return hand_in(folder, json.dumps(plain))

    return make


def is_check(cell):
    return cell["metadata"].get("nbgrader", {}).get("grade")


def the(cells, grade_id):
    return next(cell for cell in cells if cell["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def without_ids(cells):
    for cell in cells:
        cell.pop("id")


def without_metadata(cells):
    without_ids(cells)
    for cell in cells:
        cell["metadata"] = {}


def duplicated(cells):
    cells += [cell for cell in cells if is_check(cell)]


def deleted(cells):
    cells[:] = [cell for cell in cells if not is_check(cell)]


def edited(cells):
    for cell in cells:
        if is_check(cell):
            cell["source"], cell["metadata"]["nbgrader"]["points"] = "print('passed')", 1000


def own_cells(*sources):
    def change(cells):
        place = cells.index(the(cells, "residual_dist")) + 1
        cells[place:place] = [
            {"cell_type": "code", "source": s, "metadata": {}, "id": f"own-{i}", "outputs": [], "execution_count": None}
            for i, s in enumerate(sources)
        ]

    return change


def big_outputs(cells):
    big = {"output_type": "stream", "name": "stdout", "text": [f"step {i}: loss 0.{i}\n" for i in range(1_700_000)]}
    next(cell for cell in cells if cell["cell_type"] == "code")["outputs"] = [big]


def old_format(folder):
    def old(cell):
        text = "input" if cell["cell_type"] == "code" else "source"
        return {"cell_type": cell["cell_type"], text: cell["source"], "metadata": cell["metadata"]}

    cells = [old(cell) for cell in json.loads(RIGHT)["cells"]]
    return hand_in(folder, json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]}))


def files(*names):
    def make(folder):
        for name in names:
            put(folder, name)
        return folder

    return make


def zipped(content, **attributes):
    """A zip with these members; a member's attributes may be set."""

    def make(folder):
        archive = folder / "submissions.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for name, text in content.items():
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                for attribute, value in attributes.items():
                    setattr(info, attribute, value)
                file.writestr(info, text)
        return archive

    return make


def linked(folder):
    secret = put(folder / "outside", "secret.ipynb")
    inside = folder / "in"
    (inside / "ada" / A).mkdir(parents=True)
    (inside / "ada" / A / NOTEBOOK).symlink_to(secret)
    (inside / "ben").mkdir()
    (inside / "ben" / A).symlink_to(folder / "outside")
    (inside / "cleo").symlink_to(folder / "outside")
    return inside


def hard_linked(folder):
    theirs = put(folder / "outside", "theirs.ipynb")
    (folder / "in" / "ada" / A).mkdir(parents=True)
    os.link(theirs, folder / "in" / "ada" / A / NOTEBOOK)
    return folder / "in"


def pipe(folder):
    (folder / "ada" / A).mkdir(parents=True)
    os.mkfifo(folder / "ada" / A / NOTEBOOK)
    return folder


def directory(path):
    def make(folder):
        (folder / path).mkdir(parents=True)
        return folder

    return make


def too_large(folder):
    path = put(folder, f"ada/{A}/{NOTEBOOK}", "")
    os.truncate(path, reading.LARGEST + 1)  # a sparse file: it takes no space
    return folder


MADE = {
    "no cell ids": changed(without_ids),
    "stripped metadata": changed(without_metadata),
    "duplicated checks": changed(duplicated),
    "deleted checks": changed(deleted),
    "edited checks": changed(edited),
    "deleted solution": changed(lambda cells: cells.remove(the(cells, "residual_dist"))),
    "two definitions": changed(own_cells("def residual_dist(p, q):\n    return p")),
    "added cells": changed(own_cells("def helper():\n    return 1")),
    "old format": old_format,
    "large outputs": changed(big_outputs),
    "renamed": files(f"ada/{A}/My Exercise (1).ipynb"),
    "several": files(f"ada/{A}/a.ipynb", f"ada/{A}/b.ipynb"),
    "resubmitted": files(f"ada/{A}/{NOTEBOOK}", f"ada/{A}/exercise-2.ipynb", f"ada/{A}/exercise-10.ipynb", f"ada/{A}/notes.ipynb"),
    "inbound": files(*(f"ada+x+{A}+2026-0{m}-01 09:00:00.000000 UTC{r}/{NOTEBOOK}" for m, r in [(1, ""), (3, "+a"), (3, "+b"), (2, "")])),
    "canvas late": zipped({"lovelaceada_LATE_1234_56789_exercise.ipynb": RIGHT}),
    "canvas twice": zipped({
        "lovelaceada_1234_50009_exercise-2.ipynb": RIGHT, "lovelaceada_1234_50001_exercise.ipynb": "{}",
        "lovelaceada_1234_50010_exercise-1.ipynb": "{}", "lovelaceada_1234_60000_other.ipynb": "{}",
    }),
    "canvas other": zipped({"lovelaceada_1234_56789_report.pdf": "%PDF"}),
    "zip traversal": zipped({"../../lovelaceada_1_2_exercise.ipynb": RIGHT, "/etc/x_1_2_exercise.ipynb": RIGHT, "a/b.ipynb": RIGHT}),
    "zip bomb": zipped({"lovelaceada_1234_56789_exercise.ipynb": b"\0" * (reading.LARGEST + 1)}),
    "zip link": zipped({"lovelaceada_1234_56789_exercise.ipynb": "/etc/passwd"}, external_attr=(stat.S_IFLNK | 0o777) << 16),
    "not json": lambda folder: hand_in(folder, "no notebook at all"),
    "no cells": lambda folder: hand_in(folder, '{"nbformat": 4, "metadata": {}}'),
    "not utf-8": lambda folder: hand_in(folder, RIGHT.replace("Exercise", "Übung").encode("latin-1", "replace")),
    "too large": too_large,
    "link": linked,
    "hard link": hard_linked,
    "pipe": pipe,
    "folder": directory(f"ada/{A}/{NOTEBOOK}"),
    "empty": directory("ada"),
    "no notebook": directory(f"ada/{A}"),
    "unknown": files(f"ada/02-rejection_rule/{NOTEBOOK}"),
    "misplaced": files("ada.ipynb", "ben/notes.txt"),
    "namesakes": files(f"ada/{A}/{NOTEBOOK}", f"Ada/{A}/{NOTEBOOK}"),
}  # fmt: skip

SAYS = {
    "deleted solution": "the cell residual_dist is missing",
    "two definitions": "residual_dist is defined in 2 cells; the last one counts",
    "renamed": "My Exercise (1).ipynb was graded as exercise.ipynb",
    "several": "none of 2 notebooks is called exercise.ipynb",
    "resubmitted": "exercise-10.ipynb was graded as exercise.ipynb; the earlier exercise.ipynb was not graded; the earlier "
                   "exercise-2.ipynb was not graded; notes.ipynb was not looked at",
    "inbound": "an earlier submission of 2026-01-01 09:00:00.000000 UTC was not graded",
    "canvas late": "handed in late, says Canvas",
    "canvas twice": "the other upload other.ipynb was not graded; the other upload exercise.ipynb was not graded",
    "canvas other": "there is no notebook, only report.pdf",
    "zip traversal": "nothing was unpacked",
    "zip bomb": "larger than 100 MB",
    "zip link": "is a link",
    "not json": "not JSON",
    "no cells": "no list of cells",
    "not utf-8": "not JSON (UnicodeDecodeError",
    "too large": "at most 100 are read",
    "link": "is a link",
    "hard link": "exercise.ipynb is a hard link",
    "pipe": "exercise.ipynb is a pipe",
    "folder": "exercise.ipynb is a folder",
    "unknown": "did you mean 02-rejection-rule?",
    "misplaced": "lies outside",
    "namesakes": "differs only in upper and lower case",
}  # fmt: skip


def outcomes(source, unpacked):
    """[(student, status, notes)] of all that a source holds, its notebooks read and rebuilt as a grader does it."""
    found = []
    for submission in collect(source, KNOWN, A if source.suffix == ".zip" else "", unpacked):
        status, notes = submission.status or "graded", list(submission.notes)
        if submission.path:
            try:
                notebook, remarks = rebuild(read(submission.path), RELEASE)
                notes += remarks
                _is_whole(notebook)
            except Unreadable as error:
                status, notes = error.status, [str(error)]
        found.append((submission.student, status, "; ".join(notes)))
    return found


def _is_whole(notebook):
    """The release's own checks, each once and with its points, and cell ids that are unique."""
    checks = [(c.metadata.nbgrader.grade_id, c.metadata.nbgrader.points, c.source) for c in notebook.cells if is_check(c)]
    own = [(c.metadata.nbgrader.grade_id, c.metadata.nbgrader.points, c.source) for c in RELEASE.cells if is_check(c)]
    assert checks == own, "a rebuilt notebook must have the release's checks, whatever the student's copy has"
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert len(course.text(notebook)) < 100_000, "outputs must be dropped"


def test_every_case_of_the_table_is_made_here():
    assert [case.name for case in cases.CASES] == list(MADE), "add the new case to MADE in tests/test_inputs.py, or to cases.CASES"


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_the_outcome_is_the_table_s(case, tmp_path):
    source, unpacked = tmp_path / "source", tmp_path / "unpacked"
    source.mkdir()
    unpacked.mkdir()
    source = MADE[case.name](source)
    before = {path for path in tmp_path.rglob("*") if unpacked not in path.parents}
    found = outcomes(source, unpacked)
    assert found
    assert {status for _, status, _ in found} == {case.status}, found
    assert all(SAYS.get(case.name, "") in notes for _, _, notes in found), found
    assert {path for path in tmp_path.rglob("*") if unpacked not in path.parents} == before, "something was written outside"


def test_a_right_notebook_stays_right_through_every_editor(tmp_path):
    right = [cell.source for cell in zoo.filled(A, RELEASE).cells]
    for name in ("no cell ids", "stripped metadata", "duplicated checks", "deleted checks", "edited checks", "old format"):
        folder = tmp_path / name
        folder.mkdir()
        (submission,) = collect(MADE[name](folder), KNOWN)
        notebook, notes = rebuild(read(submission.path), RELEASE)
        assert [cell.source for cell in notebook.cells] == right, f"{name}: a cell is lost or in another place"
        assert notes == []


def test_the_guide_shows_the_tables():
    guide = (course.ROOT / "appendices" / "instructor.md").read_text(encoding="utf-8")
    for table in ("table", "notebooks"):
        command = f"python -c 'from autograder import cases; print(cases.{table}())'"
        assert getattr(cases, table)() in guide, f"put the output of `{command}` into the guide"


def test_no_module_imports_itself_by_way_of_others():
    """Intake knows nothing of judging, and no import waits in a function for its cycle to be over."""
    files = {path: path.relative_to(course.ROOT).with_suffix("").parts for path in (course.ROOT / "autograder").rglob("*.py")}
    modules = {".".join(parts).removesuffix(".__init__"): path for path, parts in files.items() if "zoo" not in parts}
    imports = {}
    for module, path in modules.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
        named = [(f"{node.module}.{alias.name}", node.module) for node in nodes for alias in node.names]
        imports[module] = {inner if inner in modules else outer for inner, outer in named} & modules.keys()
    assert len(tuple(TopologicalSorter(imports).static_order())) == len(modules)
    outer = ("autograder.judging", "autograder.outputs", "autograder.runner", "autograder.gradescope", "autograder.marks")
    assert not [(m, name) for m in modules if m.startswith("autograder.intake") for name in imports[m] if name.startswith(outer)]


def test_fifty_megabytes_are_read_in_seconds(tmp_path):
    folder = MADE["large outputs"](tmp_path)
    (submission,) = collect(folder, KNOWN)
    assert submission.path.stat().st_size > 45e6
    start = time.process_time()
    assert len(read(submission.path)) == len(RELEASE.cells)
    assert time.process_time() - start < 10


@pytest.mark.parametrize("content", [b"[" * 5_000_000, b'{"cells": [' + b'"a",' * 5_100_000 + b'"a"]}', b"[{}" + b",{}" * 4_000_000 + b"]"])
def test_a_file_that_is_made_to_take_memory_is_refused(tmp_path, content):
    path = put(tmp_path, "x.ipynb", content)
    with pytest.raises(Refused, match="small parts"):
        read(path)


def test_a_notebook_with_endless_cells_is_refused(tmp_path):
    cells = [{"cell_type": "code", "source": "x = 1", "metadata": {}}] * (reading.MOST_CELLS + 1)
    with pytest.raises(Refused, match="cells"):
        read(put(tmp_path, "x.ipynb", json.dumps({"cells": cells})))


def test_code_that_the_parser_cannot_take_is_only_text(tmp_path):
    plain = json.loads(RIGHT)
    the(plain["cells"], "residual_dist")["source"] = "(" * 20_000
    notebook, _ = rebuild(read(put(tmp_path, "x.ipynb", json.dumps(plain))), RELEASE)
    _is_whole(notebook)


def test_all_links_are_seen_and_none_is_followed(tmp_path):
    found = collect(linked(tmp_path), KNOWN)
    assert [(s.student, s.status, s.path) for s in found] == [(name, "refused", None) for name in ("ada", "ben", "cleo")]


def test_a_link_that_appears_later_is_not_followed_either(tmp_path):
    (submission,) = collect(hand_in(tmp_path, RIGHT), KNOWN)
    submission.path.unlink()
    submission.path.symlink_to("/etc/passwd")
    with pytest.raises(Refused, match="is a link"):
        read(submission.path)


def test_an_nbgrader_course_is_a_source(tmp_path):
    put(tmp_path, f"submitted/ada/{A}/{NOTEBOOK}")
    put(tmp_path, f"submitted/ada/{A}/timestamp.txt", "2026-02-03 10:11:12 UTC\n")
    put(tmp_path, f"source/{A}/{NOTEBOOK}")
    (submission,) = collect(tmp_path, KNOWN)
    assert (submission.student, submission.assignment, submission.timestamp) == ("ada", A, "2026-02-03 10:11:12 UTC")


def test_the_inbound_folder_gives_the_latest(tmp_path):
    (submission,) = collect(MADE["inbound"](tmp_path), KNOWN)
    assert submission.student == "ada+x"
    assert submission.path.parent.name.endswith("UTC+b"), "of two at the same time the last by name counts"
    assert submission.timestamp == "2026-03-01 09:00:00.000000 UTC"
    assert len(submission.notes) == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lovelaceada_1234_56789_exercise.ipynb", ("lovelaceada_1234", "1234", False, 56789, "exercise.ipynb")),
        ("lovelaceada_LATE_1234_56789_exercise-1.ipynb", ("lovelaceada_1234", "1234", True, 56789, "exercise-1.ipynb")),
        ("o-neilmary_ann_77_88_my_1_2_file.ipynb", ("o-neilmary_ann_77", "77", False, 88, "my_1_2_file.ipynb")),
        ("名字_1_2_練習.ipynb", ("名字_1", "1", False, 2, "練習.ipynb")),
        ("anon_bWCmx_56789_exercise.ipynb", ("anon_bWCmx", "", False, 56789, "exercise.ipynb")),
    ],
)
def test_the_names_that_canvas_gives(name, expected):
    upload = canvas.parts(name)
    assert (upload.student, upload.user, upload.late, upload.number, upload.original) == expected


@pytest.mark.parametrize("name", ["exercise.ipynb", "ada_1.ipynb", "ada_1_2", "_1_2_", "", "ada_x_2_y.ipynb", "1_2_3.ipynb"])
def test_other_names_are_not_taken_for_canvas_s(name):
    assert canvas.parts(name) is None


def test_a_canvas_download_may_be_unpacked_already(tmp_path):
    for name in ("lovelaceada_1234_50001_exercise.ipynb", "hopper_5_6_exercise-1.ipynb", "hopper_5_7_exercise-1.ipynb"):
        put(tmp_path, name)
    found = collect(tmp_path, KNOWN, A)
    assert [(s.student, s.canvas_id, s.path.name) for s in found] == [
        ("hopper_5", "5", "hopper_5_7_exercise-1.ipynb"),
        ("lovelaceada_1234", "1234", "lovelaceada_1234_50001_exercise.ipynb"),
    ]


def test_a_canvas_zip_needs_to_say_of_which_assignment_it_is(tmp_path):
    archive = MADE["canvas late"](tmp_path)
    for assignment in ("", "03-nothing"):
        with pytest.raises(ValueError, match="of one assignment"):
            collect(archive, KNOWN, assignment, tmp_path)
    with pytest.raises(ValueError, match="needs a folder"):
        collect(archive, KNOWN, A)


def test_what_is_no_zip_is_said_to_be_none(tmp_path):
    with pytest.raises(ValueError, match="is no zip file"):
        collect(put(tmp_path, "submissions.zip", "PK"), KNOWN, A, tmp_path)


def test_a_zip_with_more_files_than_any_course_hands_in_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(canvas, "MOST_FILES", 3)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    uploads = {f"student{i}_{i}_{i}_exercise.ipynb": RIGHT for i in range(4)}
    with pytest.raises(ValueError, match="has 4 files; at most 3"):
        collect(zipped(uploads)(tmp_path), KNOWN, A, unpacked)
    assert not list(unpacked.iterdir())
    uploads.popitem()
    folders = {"__MACOSX/._student0_0_0_exercise.ipynb": "", ".DS_Store": ""}  # are not counted
    assert len(collect(zipped(uploads | folders)(tmp_path), KNOWN, A, unpacked)) == 3


def test_a_damaged_member_costs_only_itself(tmp_path):
    archive = zipped({"a_1_2_exercise.ipynb": RIGHT, "b_1_3_exercise.ipynb": RIGHT})(tmp_path)
    content = bytearray(archive.read_bytes())
    content[200:260] = b"\xff" * 60  # within the first member
    archive.write_bytes(content)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    assert [(s.student, s.status) for s in collect(archive, KNOWN, A, unpacked)] == [("a_1", "refused"), ("b_1", "")]
