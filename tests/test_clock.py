"""Who pays for time: a child for what it computes and, after a while, for its sleep; nobody for standing in line."""

import os
import threading

import pytest

from autograder.inside import usage
from autograder.judging.clock import MOST_WALL, WALL, Clock, Usage


class Machine:
    """A clock, a child and a judge, all told what to do. `tells`: whether the kernel tells how long somebody stood in line."""

    def __init__(self, tells=True):
        self.time, self.cpu, self.queued, self.own, self.tells, self.gone, self.looks = 0.0, 0.0, {"1": 0.0}, 0.0, tells, False, 0
        self.clock = Clock(self.usage, lambda: self.time, lambda: self.own)

    def usage(self):
        self.looks += 1
        return None if self.gone else Usage(self.cpu, dict(self.queued) if self.tells else None)

    def goes(self, seconds, cpu=0.0, queued=0.0, own=0.0, thread="1"):
        """The judge waits so long for the child, which meanwhile computes, stands in line, and sleeps the rest."""
        with self.clock.waiting():
            self.time += seconds
            self.cpu, self.own = self.cpu + cpu, self.own + own
            self.queued[thread] = self.queued.get(thread, 0.0) + queued


def test_a_child_that_computes_is_charged_for_it():
    machine = Machine()
    limit = machine.clock.limit(5)
    machine.goes(4, cpu=4)
    assert machine.clock.used(limit) == 4
    machine.goes(1, cpu=1)
    assert machine.clock.left(limit) <= 0


@pytest.mark.parametrize("share", [0.5, 0.2, 0.1])
def test_a_child_that_starves_is_charged_for_what_it_had(share):
    machine = Machine()
    limit = machine.clock.limit(5)
    for _ in range(round(4 / share)):
        machine.goes(1, cpu=share, queued=1 - share)
        assert machine.clock.left(limit) > 0
    assert machine.clock.used(limit) == pytest.approx(4)


@pytest.mark.parametrize(("seconds", "sleeps"), [(0.5, 1), (5, 10), (20, 10), (300, 10)])
def test_a_child_that_sleeps_is_late_soon(seconds, sleeps):
    machine = Machine()
    limit = machine.clock.limit(seconds)
    while (left := machine.clock.left(limit)) > 0:
        machine.goes(min(left, 1), cpu=0.0)
    assert sleeps <= machine.time < sleeps + 1.1
    assert machine.looks < 10, "each look asks the sandbox"


def test_while_the_judge_computes_nobody_is_charged():
    machine = Machine()
    limit = machine.clock.limit(5)
    machine.time += 1000
    assert machine.clock.used(limit) == 0
    machine.goes(1, cpu=1)
    assert machine.clock.used(limit) == 1


def test_a_judge_that_starves_costs_the_child_nothing():
    machine = Machine()
    limit = machine.clock.limit(5)
    machine.goes(8, cpu=1, own=7)  # the answer was there after a second, and nobody to read it
    assert machine.clock.used(limit) == 1


def test_what_was_before_a_limit_does_not_count():
    machine = Machine()
    machine.goes(50, cpu=20, queued=10, own=5)
    limit = machine.clock.limit(5)
    machine.goes(4, cpu=1, queued=1)
    assert machine.clock.used(limit) == 1 + 2


def test_a_crowd_of_threads_that_stand_in_line_buys_little():
    """Thirty that wake up together and hardly run have waited for each other many times what passed: one's wait counts."""
    machine = Machine()
    limit = machine.clock.limit(5)
    for thread in range(30):
        machine.queued[f"t{thread}"] = 0.0
    machine.goes(10, cpu=0.5)
    for thread in range(30):
        machine.queued[f"t{thread}"] += 0.5
    assert machine.clock.used(limit) == 0.5 + 9


def test_several_processes_are_charged_for_all_that_they_compute():
    machine = Machine()
    limit = machine.clock.limit(5)
    machine.goes(2, cpu=8)
    assert machine.clock.used(limit) == 8


def test_standing_in_line_for_ever_has_an_end():
    machine = Machine()
    limit = machine.clock.limit(5)
    machine.goes(5 * MOST_WALL - 1, queued=5 * MOST_WALL - 1)
    assert machine.clock.left(limit) > 0
    machine.goes(1, queued=1)
    assert machine.clock.left(limit) <= 0


def test_where_the_kernel_does_not_tell_the_clock_may_show_several_times_the_limit():
    machine = Machine(tells=False)
    limit = machine.clock.limit(5)
    machine.goes(5 * WALL - 1, cpu=1)
    assert machine.clock.left(limit) > 0
    machine.goes(1)
    assert machine.clock.left(limit) <= 0


def test_a_child_that_is_gone_has_used_what_was_last_seen():
    machine = Machine()
    limit = machine.clock.limit(60)
    machine.goes(4, cpu=4)
    assert machine.clock.used(limit) == 4
    machine.gone = True
    assert machine.clock.used(limit) == 4


# -- /proc -------------------------------------------------------------------------------------------------------------


def process(proc, pid, session, ticks, threads, name="a b) c"):
    (proc / pid / "task").mkdir(parents=True)
    fields = ["S", "1", pid, session, *["0"] * 7, *map(str, ticks)]
    (proc / pid / "stat").write_text(f"{pid} ({name}) {' '.join(fields)} 0 0\n")
    for thread, text in threads.items():
        (proc / pid / "task" / thread).mkdir()
        (proc / pid / "task" / thread / "schedstat").write_text(text)


def test_a_child_s_processes_are_read_with_their_threads(tmp_path):
    second = os.sysconf("SC_CLK_TCK")
    process(tmp_path, "7", "7", [second, second, 0, 2 * second], {"7": "1500000000 250000000 3\n", "8": "1 500000000 3\n"})
    process(tmp_path, "9", "7", [second, 0, 0, 0], {"9": "5 0 1\n"})
    process(tmp_path, "11", "11", [second] * 4, {"11": "5 1000000000 1\n"})
    (tmp_path / "meminfo").write_text("")
    assert sorted(usage.of_session(7, tmp_path)) == ["7", "9"]
    assert usage.cpu_seconds(["7", "9", "12"], tmp_path) == 5, "one that is gone does not count"
    assert usage.queued_seconds(["7", "9", "12"], tmp_path) == {"7": 0.25, "8": 0.5, "9": 0.0}


@pytest.mark.parametrize("text", [None, "0 0 0\n", "", "none"])
def test_a_kernel_that_does_not_tell_is_known(tmp_path, text):
    process(tmp_path, "7", "7", [1] * 4, {} if text is None else {"7": text})
    assert usage.queued_seconds(["7"], tmp_path) is None
    assert usage.own_queued_seconds(tmp_path) == 0.0


def test_where_there_is_no_proc_nothing_is_known(tmp_path):
    nowhere = tmp_path / "nowhere"
    assert (usage.processes(nowhere), usage.cpu_seconds(["1"], nowhere), usage.queued_seconds(["1"], nowhere)) == ([], 0.0, None)


def test_a_thread_s_own_time_in_line_is_its_own(tmp_path):
    (tmp_path / "thread-self").mkdir()
    (tmp_path / "thread-self" / "schedstat").write_text("12 3000000000 4\n")
    assert usage.own_queued_seconds(tmp_path) == 3.0
    found = []
    thread = threading.Thread(target=lambda: found.append(usage.own_queued_seconds()))
    thread.start()
    thread.join()
    assert found[0] >= 0
