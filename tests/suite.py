"""How the suite is cut: what stands side by side, which long tests a day of the year has, and what a run left out."""

from collections import Counter

import pytest
from xdist.scheduler import LoadFileScheduling

PARTS = 10  # of the long tests; a day's CI runs one
LEFT_OUT = pytest.StashKey[Counter]()


def pytest_addoption(parser):
    parser.addoption("--turn", type=int, metavar="DAY", help=f"only the long tests of a day of the year: one part of {PARTS}")


class Scheduler(LoadFileScheduling):
    """A file runs in one process, so that it makes its fixtures once; and all files with the real model in the same one, which loads it.

    xdist's own groups (`--dist loadgroup`) stand in node ids, which this pytest does not let it change: they would have no effect.
    """

    def _split_scope(self, nodeid: str) -> str:
        name = nodeid.partition("::")[0]
        path = self.config.rootpath / name
        return "model" if "pytest.mark.model" in path.read_text(encoding="utf-8") else name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return Scheduler(config, log)


def part(item) -> str:
    """What is never cut apart in turns: a test, or a file whose tests go on from each other."""
    return item.path.name if item.get_closest_marker("in_order") else item.nodeid


def parts(items) -> list[list]:
    """The long tests in PARTS parts, each in one of them; those that differ in a parameter alone stand in different ones."""
    long = [item for item in items if item.get_closest_marker("slow")]
    named = sorted({part(item) for item in long})
    return [[item for item in long if named.index(part(item)) % PARTS == number] for number in range(PARTS)]


def pytest_configure(config):
    config.stash[LEFT_OUT] = Counter()


def pytest_collection_modifyitems(config, items):
    day = config.getoption("turn")
    if day is not None:
        chosen = set(parts(items)[day % PARTS])
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


# Under xdist the tests are chosen in the workers, and the report is written elsewhere.


@pytest.hookimpl
def pytest_deselected(items):
    for item in items:
        item.config.stash[LEFT_OUT][item.path.name] += 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left out", {}))


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = dict(session.config.stash[LEFT_OUT])


def pytest_terminal_summary(terminalreporter, config):
    left = config.stash[LEFT_OUT]
    if left:
        terminalreporter.section("left out")
        terminalreporter.write_line(", ".join(f"{name} {number}" for name, number in left.most_common()))
        terminalreporter.write_line(f"{left.total()} tests in all; `make test-all` runs every test")
