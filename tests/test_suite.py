"""How the suite is cut (suite.py), on a small suite."""

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
    pytester.makepyfile(test_small=SMALL, test_term=TERM)
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


@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_left_out_is_told(run, workers):
    _, told = run("-m", "not slow", "-n", workers, "--dist", "loadgroup")
    assert "test_small.py 25, test_term.py 2" in told
    assert "27 tests in all" in told
    assert "left out" not in run("-n", workers, "--dist", "loadgroup")[1]
