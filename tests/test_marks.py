"""Marks survive on disk: whole, exact, under any name, and damage is noticed."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from autograder import course, marks
from autograder.checks import figures
from autograder.marks import CheckMark, Damaged, Ledger, Mark, from_json, to_json

PICTURES = {
    "acceptance": {"points": [(0.5, 0.5), (1.5, 1.0)]},
    "residual": {"p": [0.5, 0.5], "q": (0.1, 0.9), "right": [1.0, 0.0], "student": [0.75, 0.25]},
    "law": {"right": {(0, 1): 0.5, (2,): 0.5}, "student": {(): 0.25, (0, 1): 0.75}},
    "histogram": {"observed": [0.4, 0.6], "expected": [0.5, 0.5], "samples": 50_000},
    "curves": {"curves": {"a": [1, 2.5], "b": [1.0]}, "title": "t", "ylabel": "y", "marks": [(1, 2.5, "best")]},
    "distributions": {"series": {"p": [0.5, 0.5], "q": (0.1, 0.9)}, "title": "t"},
    "several": {"lines": {"a": ([0, 1], [0.5, 2.0])}, "title": "t", "xlabel": "x", "ylabel": "y"},
    "intervals": {"points": [(100, 0.5, 0.1), (1000, 0.6, 0.02)], "title": "t", "xlabel": "x", "ylabel": "y", "truth": 0.6},
    "beside": {"labels": ["a", "b"], "right": [1, 2.0], "student": [1.5, 2], "title": "t", "xlabel": "x", "ylabel": "y", "log": True},
    "lines": {"x": (1, 2, 4), "right": [1, 2.0, 3], "student": [1.5, 2, 3], "title": "t", "xlabel": "x", "ylabel": "y"},
    "slots": {"rows": {"before": ["cached", "drafted"], "after": ["cached", "dropped"]}, "title": "t"},
}


def a_mark(student="ada", points=(2.0, 0.5), **changes):
    kinds = list(PICTURES)
    checks = tuple(
        CheckMark(f"02.c{i}", f"check_{i}", p, 2.0, f"message {i}", picture={"kind": kinds[i], **PICTURES[kinds[i]]}, seed=2**60 + i)
        for i, p in enumerate(points)
    )
    values = {"assignment": "02-rejection-rule", "status": "graded", "notes": ("a note",), "submission": "ab", "version": "v1"}
    return Mark(student, checks=checks, **{**values, **changes})


def test_a_mark_comes_back_as_it_was():
    mark = a_mark(points=(2.0, 0.5, 1 / 3, 0.0, 2.0, 2.0))
    back = from_json(to_json(mark))
    without = [{**vars(check), "picture": None} for check in mark.checks]
    assert [{**vars(check), "picture": None} for check in back.checks] == without, "a field is lost on the way through JSON"
    assert (back.student, back.notes, back.score, back.message) == (mark.student, mark.notes, mark.score, mark.message)


def test_a_picture_comes_back_drawable():
    assert set(PICTURES) == set(figures._KINDS), "a kind of picture has no example here: add one to PICTURES"
    for kind, data in PICTURES.items():
        mark = Mark("ada", "02", "graded", (CheckMark("02.a", "a", 0, 1, "m", picture={"kind": kind, **data}),))
        picture = from_json(to_json(mark)).checks[0].picture
        assert repr(picture) == repr({"kind": kind, **data}), f"a picture of the kind {kind} changes on its way through JSON"
        figures.draw(**picture)


def test_numbers_that_are_not_finite_come_back():
    picture = {"kind": "curves", "curves": {"a": [math.nan, math.inf, -math.inf]}}
    mark = Mark("ada", "02", "graded", (CheckMark("02.a", "a", 0, 1, "m", picture=picture),))
    assert repr(from_json(to_json(mark)).checks[0].picture) == repr(picture)


def test_a_picture_that_is_no_plain_data_costs_the_picture_and_not_the_mark():
    for bad in (object(), {"deep": [object()]}, 10**5000):
        mark = Mark("ada", "02", "graded", (CheckMark("02.a", "a", 1, 1, "m", picture={"kind": "law", "right": bad}),))
        back = from_json(to_json(mark))
        assert back.score == 1
        assert back.checks[0].picture is None
        assert "pictures were left out" in back.message


def test_the_message_says_each_thing_once():
    same = [CheckMark(f"02.{name}", name, 0, 1, "no bonus\ntoken") for name in "ab"]
    assert Mark("x", "02", "graded", (*same, CheckMark("02.c", "c", 1, 1, "fine")), ("late",)).message == "02.a, 02.b: no bonus token; late"
    assert Mark("x", "02", "graded", (CheckMark("02.c", "c", 1, 1, "fine"),), ("late",)).message == "every check passed; late"
    assert Mark("x", "02", "unreadable", tuple(same), ("not JSON",)).message == "not JSON"
    assert Mark("x", "02", "empty", ()).message == marks.STATUS["empty"]


DAMAGES = {
    "cut": lambda text: text[:-20],
    "empty": lambda text: "",
    "a digit": lambda text: text.replace('"points": 0.5', '"points": 1.5'),
    "a letter": lambda text: text.replace("ada", "adb"),
    "no mark": lambda text: '{"format": 1}',
    "a list": lambda text: "[1, 2]",
    "a number": lambda text: "7",
    "deep": lambda text: "[" * 100_000,
    "other format": lambda text: text.replace('"format": 1', '"format": 2'),
    "not utf-8": lambda text: b"\xff\xfe" + text.encode(),
    "zeros": lambda text: b"\0" * 500,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed_and_means_not_graded(tmp_path, damage):
    ledger, mark = Ledger(tmp_path), a_mark()
    ledger.store(mark)
    (path,) = tmp_path.iterdir()
    text = DAMAGES[damage](path.read_text(encoding="utf-8"))
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert ledger.find("ada", mark.assignment, "ab", "v1") is None, "a damaged mark must count as none"
    assert ledger.all() == []
    assert list(ledger.damaged) == [path], "the ledger must tell which file is damaged"
    ledger.store(mark)
    assert len(ledger.all()) == 1
    assert ledger.damaged == {}


WRONG_TYPES = {
    "points": "2", "max_points": True, "message": None, "seed": 1.5, "hint": 3, "picture": [1], "seconds": None,
}  # fmt: skip


@pytest.mark.parametrize("field", WRONG_TYPES)
def test_a_well_formed_mark_with_a_wrong_type_is_damaged_too(field):
    plain = json.loads(to_json(a_mark()))["mark"]
    plain["checks"][0][field] = WRONG_TYPES[field]
    with pytest.raises(Damaged):
        from_json(json.dumps({"format": marks.FORMAT, "mark": plain, "sha256": marks._digest(plain)}))


NAMES = [
    "ada", "Ada", "ADA", "ada ", " ada", "a/b".replace("/", "∕"), "…", ".hidden", "a" * 255, "é" * 127, "é" * 126 + "e",
    "e\u0301", "\u00e9", "null\n", "tab\t", "-rf", "*", "con", "名字", "🙂", "\udc80\udcff", "a+b", "a%2Fb", "ada-02",
]  # fmt: skip


def test_every_name_that_a_folder_can_have_keeps_its_own_mark(tmp_path):
    ledger = Ledger(tmp_path)
    for name in NAMES:
        ledger.store(a_mark(name, version=repr(name)))
    assert sorted(mark.student for mark in ledger.all()) == sorted(NAMES), "two names share a file, or a name was lost"
    for name in NAMES:
        assert ledger.find(name, "02-rejection-rule", "ab", repr(name)).student == name
    files = [path.name for path in tmp_path.iterdir()]
    assert len({file.lower() for file in files}) == len(NAMES), "two files differ only in upper and lower case"
    assert all(file.isascii() and len(file) < 120 for file in files)


def test_only_the_same_submission_under_the_same_checks_is_found(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.store(a_mark())
    assert ledger.find("ada", "02-rejection-rule", "ab", "v1")
    assert ledger.find("ada", "02-rejection-rule", "ab", "v2") is None
    assert ledger.find("ada", "02-rejection-rule", "cd", "v1") is None
    assert ledger.find("ada", "04-speedup", "ab", "v1") is None
    assert ledger.find("ben", "02-rejection-rule", "ab", "v1") is None
    ledger.store(a_mark(points=(0.0, 0.0)))
    assert [mark.score for mark in ledger.all()] == [0.0], "a new mark must replace the old one"


def test_a_file_under_another_name_is_no_mark(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.store(a_mark())
    (path,) = tmp_path.iterdir()
    path.rename(tmp_path / "copy.json")
    assert ledger.all() == []
    assert "another submission" in ledger.damaged[tmp_path / "copy.json"]


WRITER = """
import sys; from pathlib import Path; from autograder.marks import *
ledger = Ledger(Path(sys.argv[1]))
for version in range(10**6):
    ledger.store(Mark("ada", "02", "graded", (CheckMark("02.a", "a", 1, 1, "m" * 5000, seed=version),), version=str(version)))
    print(version, flush=True)
"""


def test_killed_at_any_moment_the_last_mark_is_whole(tmp_path):
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=course.ROOT) as process:
            process.stdout.readline()
            time.sleep(random.uniform(0.0, 0.2))
            os.kill(process.pid, signal.SIGKILL)
            told = process.stdout.read().split()
        ledger = Ledger(tmp_path)
        (mark,) = ledger.all()
        assert not ledger.damaged
        assert int(mark.version) >= int(told[-1] if told else 0), "a mark that was stored is lost"


def test_what_was_not_judged_has_not_passed():
    """Of a submission without checks, as of an empty folder, every check passes: there is none."""
    passing = (CheckMark("02.a", "a", 1, 1, "fine"),)
    assert Mark("x", "02", "graded", passing).passed
    assert not [status for status in marks.STATUS if status != "graded" and Mark("x", "02", status, passing).passed]
    assert not Mark("x", "", "empty", ()).passed
