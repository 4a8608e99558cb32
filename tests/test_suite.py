"""How the suite is cut (suite.py), on a small suite."""

import re
from pathlib import Path

import pytest
import suite

pytest_plugins = ["pytester"]

SMALL = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("n", range(25))
def test_long(n): pass

def test_short(): pass
"""
REAL = """
import pytest

@pytest.mark.model
@pytest.mark.parametrize("n", range(9))
def test_{}(n): pass
"""
TERM = """
import pytest
pytestmark = [pytest.mark.slow, pytest.mark.in_order]
def test_first(): pass
def test_second(): pass
"""
MARKS = "[pytest]\nmarkers =\n    slow: s\n    in_order: o\n    model: m\n"


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs the small suite with suite.py as its plugin, and gives the names of the tests that passed and what was printed."""
    pytester.makepyfile(test_small=SMALL, test_term=TERM, test_one=REAL.format("one"), test_other=REAL.format("other"))
    pytester.makeini(MARKS)
    monkeypatch.setenv("PYTHONPATH", str(Path(suite.__file__).parent))

    def runs(*arguments):
        run_pytest = pytester.runpytest_subprocess if "-n" in arguments else pytester.runpytest_inprocess  # which is faster
        result = run_pytest("-p", "suite", "-v", "-p", "no:cacheprovider", *map(str, arguments))
        lines = [line.replace("PASSED", "").split("::") for line in result.outlines if "PASSED" in line]
        return [line[-1].split()[0] for line in lines], result.stdout.str()

    return runs


def test_all_long_tests_have_run_when_each_part_had_its_day(run):
    days = [run("--turn", day)[0] for day in range(355, 355 + suite.PARTS)]
    assert sorted(name for day in days for name in day) == sorted([f"test_long[{n}]" for n in range(25)] + ["test_first", "test_second"])
    assert max(map(len, days)) - min(map(len, days)) <= 2, "parts of about the same size"
    assert all(("test_first" in day) == ("test_second" in day) for day in days), "a file whose tests go on from each other was cut"


def test_a_file_stays_in_one_process_and_so_do_all_that_hold_the_real_model(run):
    told = run("-n", 2)[1]
    processes = {name: set() for name in ("small", "term", "one", "other")}
    for process, name in re.findall(r"\[(gw\d)\].*PASSED test_(\w+)\.py", told):
        processes[name].add(process)
    assert [len(found) for found in processes.values()] == [1, 1, 1, 1], processes
    assert processes["one"] == processes["other"]
    assert len(set.union(*processes.values())) == 2, "one of the two had nothing to do"


@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_left_out_is_told(run, workers):
    _, told = run("-m", "not slow", "-n", workers)
    assert "test_small.py 25, test_term.py 2" in told
    assert "27 tests in all" in told
    assert "left out" not in run("-n", workers)[1]
