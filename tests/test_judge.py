"""The judge and the sandbox: what crosses between them, what a child cannot do, and that whatever it does costs only itself."""

import importlib
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import nbformat
import numpy as np
import psutil
import pytest
import torch

from autograder import course, marks, zoo
from autograder.checks import core, step_tables, stepping
from autograder.inside import lent, usage, wire
from autograder.judging import clock, sandbox
from autograder.judging import judge as module
from autograder.judging import session as session_module
from autograder.judging.judge import Exercise, Judge, Settings, released
from autograder.judging.sandbox import Limits, Sandbox
from autograder.judging.session import Lost, RemoteFunction, RemoteObject, Session
from autograder.zoo import verdicts
from specdec import law

needs_sandbox = pytest.mark.skipif(bool(sandbox.unavailable()), reason=f"no sandbox: {sandbox.unavailable()}")
A = "02-rejection-rule"


# -- the wire ----------------------------------------------------------------------------------------------------------


def refuse(value):
    raise wire.Malformed(f"{value!r}")


@pytest.fixture
def ends():
    """Two connected ends, each naming its objects by a number."""
    pair = socket.socketpair()
    yield [wire.Connection(end, refuse, refuse, refuse) for end in pair], pair
    for end in pair:
        end.close()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -3,
        2**53 + 1,
        -(2**200),
        0.1,
        1e300,
        float("inf"),
        "ä\n",
        [1, [2.5, None]],
        (1, (2,)),
        {(1, 2): [3], "a": ()},
        [],
        {},
        [2**53 - 1, 2**53, -(2**53), True, 1, 1.0, -0.0, float("nan"), float("-inf"), "1"],
    ],
    ids=repr,
)
def test_plain_data_arrive_as_they_were(ends, value):
    (a, b), _ = ends
    a.send({"value": value})
    found = b.receive()["value"]
    assert repr(found) == repr(value), "types and signs included"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_tensors_arrive_bit_by_bit(ends, dtype, shape):
    (a, b), _ = ends
    tensor = (torch.randn(shape) * 10).to(dtype)
    a.send([tensor, tensor.mT if len(shape) > 1 else tensor, dtype])
    same, turned, kind = b.receive()
    assert torch.equal(same, tensor)
    assert torch.equal(turned, tensor.mT if len(shape) > 1 else tensor)
    assert (same.dtype, kind) == (dtype, dtype)


def test_numpy_arrives_as_arrays_and_numbers(ends):
    np = pytest.importorskip("numpy")
    (a, b), _ = ends
    a.send([np.arange(3.0), np.float32(0.5), np.int64(7), np.bool_(True)])
    array, *numbers = b.receive()
    assert array.tolist() == [0, 1, 2]
    assert numbers == [0.5, 7, True]
    assert [type(n) for n in numbers] == [float, int, bool]


class Impostor(list):
    def __eq__(self, other):
        return True


@pytest.mark.parametrize("value", [object(), Impostor([1]), {1, 2}, 10**5000, lambda: 1, b"bytes", [[object()]]], ids=type)
def test_what_is_no_plain_data_is_not_sent(ends, value):
    (a, _), _ = ends
    with pytest.raises(wire.Malformed):
        a.send(value)


BAD = [
    b"not json", b"NaN", b'{"a": 1, "b": 2}', b'{"int": "0x' + b"f" * 5000 + b'"}', b'{"float": "1.0"}', b'{"dict": 3}',
    b'{"tuple": "abc"}', b'{"tuple": {"tuple": [1]}}',
    b'{"dict": [[[], 1]]}', b'{"array": ["torch", "float64", [1000000], 0, 0]}', b'{"array": ["torch", "object", [1], 0, 8]}',
    b'{"array": ["os", "int8", [0], 0, 0]}', b'{"array": ["torch", "float64", [-1], 0, 0]}', b'{"ref": "x"}', b'{"own": 0}',
    b"[" * 100_000, b'{"pickle": "gASVAAAA"}', b"\xff\xfe", b"",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text[:24]))
def test_what_is_no_message_is_malformed(ends, text):
    (_, b), (raw, _) = ends
    raw.sendall(struct.pack("<II", len(text), 0) + text)
    with pytest.raises(wire.Malformed):
        b.receive()


def test_a_frame_beyond_all_bounds_is_refused_before_it_is_read(ends):
    (_, b), (raw, _) = ends
    raw.sendall(struct.pack("<II", 2**31, 2**31))
    with pytest.raises(wire.Malformed, match="a frame of"):
        b.receive()


@pytest.mark.parametrize("part", [b"[],", b"0,", b'"",', b"{},", b'{"tuple":[]},'], ids=repr)
def test_a_frame_of_millions_of_parts_is_refused_before_it_is_parsed(ends, monkeypatch, part):
    """Parsed, a list takes fifty times the bytes of its text."""
    (_, b), _ = ends
    monkeypatch.setattr(wire, "MOST_PARTS", 10_000)
    monkeypatch.setattr(wire.json, "loads", refuse)
    text = b"[" + part * 10_000 + b"0]"
    monkeypatch.setattr(wire.Connection, "_read", lambda self, size: self._come.extend(struct.pack("<II", len(text), 0) + text))
    with pytest.raises(wire.Malformed, match=r"a frame of \d+,\d+ parts"):
        b.receive()


def test_the_text_of_a_frame_has_a_bound_of_its_own(ends):
    """Arrays are long; what is parsed is not. So is what is sent."""
    (a, b), (raw, _) = ends
    raw.sendall(struct.pack("<II", wire.MOST_TEXT + 1, 0))
    with pytest.raises(wire.Malformed, match="a frame of"):
        b.receive()
    for value in ("a" * (wire.MOST_TEXT + 1), [0] * (wire.MOST_PARTS + 1)):
        with pytest.raises(wire.Malformed, match="too much for one answer"):
            a.send(value)


def test_noise_is_malformed_or_closed_and_nothing_else():
    noise = random.Random(0)
    for _ in range(300):
        end, there = socket.socketpair()
        with end, there:
            text = bytes(noise.choices(b'[]{}",:0123456789.e"refownarraydicttuple\x00\xff', k=noise.randrange(80)))
            end.sendall(struct.pack("<II", len(text), 0) + text)
            end.shutdown(socket.SHUT_WR)
            try:
                wire.Connection(there, refuse, refuse, refuse).receive()
            except (wire.Malformed, wire.Closed):
                continue


def test_a_frame_that_stops_half_way_can_be_waited_for_again(ends):
    (a, b), (raw, there) = ends
    a.send([1, 2, 3])
    frame = there.recv(1000)
    there.settimeout(0.01)
    raw.sendall(frame[:11])
    for _ in range(2):
        with pytest.raises(TimeoutError):
            b.receive()
    raw.sendall(frame[11:])
    assert b.receive() == [1, 2, 3]


# -- lent numbers ------------------------------------------------------------------------------------------------------


def test_a_pick_never_has_no_weight_and_has_its_share():
    weights = [0.0, 0.25, 0.0, 0.75, 0.0]
    picks = [lent.pick(weights, (i + 0.5) / 1000) for i in range(1000)]
    assert (picks.count(1), picks.count(3)) == (250, 750)
    assert lent.pick(weights, 1.0) == 3  # rounding may leave a number beyond the last sum


@pytest.mark.parametrize("probs", [
    [0.25, 0.75], (0.25, 0.75), torch.tensor([0.25, 0.75]), torch.tensor([[0.25], [0.75]]), [torch.tensor(0.25), torch.tensor(0.75)],
    torch.tensor([0.25, 0.75], dtype=torch.bfloat16),
], ids=repr)  # fmt: skip
def test_whatever_holds_probabilities_is_read_as_floats(probs):
    assert lent.as_floats(probs) == [0.25, 0.75]


TEXT = [["0.25", "0.75"], ("0.25", "0.75"), np.array(["0.25", "0.75"]), [b"1"], "1", "10"]  # which float() would read


@pytest.mark.parametrize("probs", [None, 0.5, torch.tensor(0.5), [[0.25, 0.75]], ["a"], *TEXT], ids=repr)
def test_what_holds_none_is_refused(probs):
    with pytest.raises((TypeError, ValueError)):
        lent.as_floats(probs)


@pytest.mark.parametrize("numbers", [1, 2])
def test_the_branches_behind_one_come_in_the_order_of_an_enumeration(numbers):
    cells = lent.Cells(3, numbers)

    def program(rng):
        first = rng.categorical([0.5, 0.25, 0.0, 0.25])
        return first, rng.categorical([0.0, 0.5, 0.25, 0.0, 0.25]), rng.uniform() if first == 1 else None

    asked = []

    def enumerated(choose):
        asked.append(list(choose.script))
        return program(stepping.Enumeration(choose, cells))

    law(enumerated)
    for start in (0, 1, 5, len(asked) - 1):  # the judge may begin anywhere
        scripts, went = [asked[start]], []
        while scripts:
            script = scripts.pop()
            rng = lent.Scripted(script, cells)
            program(rng)
            scripts += [later for later in rng.behind() if not went or len(later) > len(script)]
            went.append(script)
        assert went == asked[start:]


# -- the sandbox -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def box():
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def open_box():
    """The negative control: what a child may do without the sandbox."""
    with Sandbox(unsafe=True) as sandbox:
        yield sandbox


def ask(box, source, *args, seconds=10.0):
    """f(*args) in a child that has run `source`."""
    session = Session(box.open())
    try:
        with session.time_limit(seconds):
            session.request("cell", name="a", source=source)
            return RemoteFunction(session, "f")(*args)
    finally:
        session.close()


@needs_sandbox
def test_a_child_sees_nothing_of_the_machine(box, open_box, monkeypatch):
    source = "import os\ndef f(path):\n    return [os.path.exists(path), sorted(os.environ), os.listdir('/proc'), os.listdir('/tmp')]"
    ours = str(course.ROOT)
    there, environment, processes, files = ask(box, source, ours)
    assert not there
    assert (processes, files) == ([], [])
    assert not {"SPECDEC_CANARY", "AUTOGRADER_SECRET", "HOSTNAME", "USER"} & set(environment)
    assert ask(open_box, source, ours)[0], "without a sandbox the course must be in sight, or this test shows nothing"


@needs_sandbox
@pytest.mark.parametrize(
    "attempt",
    [
        "open('/usr/x', 'w')", "open('/inside/responder.py', 'a')", "open('/x', 'w')", "os.setuid(0)", "os.chroot('/tmp')", "os.kill(2, 9)",
        "open('/tmp/x', 'wb').write(b'x' * 2**26)", "[open(f'/tmp/{i}', 'w') for i in range(100)]", "os.memfd_create('x')",
        "socket.getaddrinfo('example.org', 443)", "os.mknod('/tmp/d', 0o60600, 0x800)",
    ],
)  # fmt: skip
def test_a_child_may_not(box, attempt):
    with pytest.raises(core.Elsewhere) as raised:
        ask(box, f"import os, socket\ndef f():\n    {attempt}")
    refusals = ("PermissionError", "OSError", "FileNotFoundError", "ProcessLookupError", "gaierror", "ConnectionRefusedError")
    assert raised.value.kind in refusals


@needs_sandbox
def test_a_child_sees_of_the_system_what_runs_programs(box, open_box, tmp_path):
    """nbgrader's exchange lies in /usr/local/share, and administrators keep more of their own in /usr."""
    source = "import os\ndef f(folder):\n    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []"
    assert not set(ask(box, source, "/usr")) - {path.split("/")[2] for path in sandbox.SYSTEM if path.startswith("/usr/")}
    assert set(ask(box, source, "/usr/local")) <= {"bin", "lib"}
    assert ask(box, source, "/usr/local/share") == []
    assert ask(box, source, "/etc") == ["alternatives", "ld.so.cache"]
    assert ask(open_box, source, "/usr/local/share") == sorted(os.listdir("/usr/local/share"))


WHAT_OF_THE_COURSE = """
import os, sys
def f(names):
    found = []
    for name in names:
        try:
            __import__(name)
            found.append(name)
        except ModuleNotFoundError as error:
            said = str(error)
    return found, said, os.listdir("/given") if os.path.isdir("/given") else []
"""


@pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_sandbox), False])
@pytest.mark.parametrize("given", [(), ("autograder.checks.tiny",)])
def test_of_the_course_a_child_has_what_its_exercise_declares(sandboxed, given, request):
    box = request.getfixturevalue("box" if sandboxed else "open_box")
    names = [
        "specdec",
        "specdec.law",
        "autograder.checks.core",
        "autograder.checks.stepping",
        "autograder.checks.tiny",
        "autograder.zoo",
    ]
    session = Session(box.open(given))
    with session.time_limit(10):
        session.request("cell", name="a", source=WHAT_OF_THE_COURSE)
        found, said, files = RemoteFunction(session, "f")(names)
        assert found == list(given)
        assert files == []
        assert "is not there when your work is graded; of the course this exercise has check" in said
        session.request("cell", name="b", source="from autograder.checks import check\ncheck('02.nothing', None)")
    session.close()


@needs_sandbox
def test_the_course_is_hidden_where_it_is_installed_among_the_libraries(tmp_path, monkeypatch):
    """As on another teacher's machine: `pip install` without -e. The finder that refuses it is the student's to remove."""
    site = tmp_path / "site-packages"
    site.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        (site / path.name).symlink_to(f"{sandbox.SITE}-real/{path.name}")
    for name in sandbox.COURSE:
        (site / name).unlink(missing_ok=True)
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("canary = 'CANARY'")
    seen = sandbox._bwrap(site)
    at = seen.index("--proc")
    seen[at:at] = ["--ro-bind", sysconfig.get_path("purelib"), f"{sandbox.SITE}-real"]
    program = "import os, sys; sys.path.append('/site')\nimport numpy, specdec\n"
    program += "print(hasattr(specdec, 'canary'), os.listdir('/site/autograder'))"
    shown = subprocess.run([*seen, os.path.realpath(sys.executable), "-I", "-c", program], capture_output=True, text=True)
    assert shown.stdout.split() == ["False", "[]"], shown.stderr


EXERCISES = """
import sys
sys.modules.update(torch=None, numpy=None)  # importing one of them is an error
from autograder import course
from autograder.judging.judge import Exercise, released
for name in course.assignments():
    exercise = Exercise(name, released(name))
    exercise.job("somebody", course.text(exercise.release).encode())
    print(exercise.version)
"""


def test_submissions_become_jobs_without_what_only_checks_need():
    shown = subprocess.run([sys.executable, "-c", EXERCISES], cwd=course.ROOT, capture_output=True, text=True)
    assert len(shown.stdout.split()) == len(course.assignments()), shown.stderr


@pytest.mark.parametrize("assignment", course.assignments())
def test_the_checks_that_an_exercise_may_ask_for_are_those_that_there_are(assignment):
    assert module._registered(assignment) == set(core.names(assignment[:2]))
    notebook = released(assignment)
    cell = next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade"))
    cell.source = cell.source.replace('check("', 'check("another.', 1)
    with pytest.raises(ValueError, match="checks that there are not: another"):
        Exercise(assignment, notebook)


def test_an_exercise_declares_by_its_imports_what_it_needs_of_the_course():
    exercise = verdicts.exercise
    assert (exercise("02-rejection-rule").given, exercise("05-kv-rollback").given) == ((), ("autograder.checks.tiny",))
    notebook = released(A)
    notebook.cells[1].source += "\nfrom specdec.law import law"
    with pytest.raises(
        ValueError, match=r"imports specdec\.law\.law, and sandbox\.GIVEN has of the course only autograder\.checks\.tiny"
    ):
        Exercise(A, notebook, "zoo")


@needs_sandbox
def test_a_child_has_no_network(box, open_box):
    source = "import socket\ndef f(port):\n    return socket.create_connection(('127.0.0.1', port), 2).getpeername()[1]"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ask(open_box, source, port) == port, "without a sandbox the server must be reached, or this test shows nothing"
        with pytest.raises(core.Elsewhere) as raised:
            ask(box, source, port)
    assert raised.value.kind == "ConnectionRefusedError"


@needs_sandbox
def test_a_child_can_import_what_it_wants(box):
    """Also what the warm Python has not imported before it gave up its rights."""
    source = "def f(names):\n    for name in names:\n        __import__(name)\n    return True"
    assert (
        ask(box, source, ["sqlite3", "statistics", "decimal", "scipy.stats", "IPython", "matplotlib.pyplot"], seconds=30)
        is True
    )


@needs_sandbox
def test_memory_has_a_limit(box):
    with pytest.raises(core.Elsewhere) as raised:
        ask(box, f"def f():\n    return len(bytearray({2 * Limits().memory}))")
    assert raised.value.kind == "MemoryError"
    assert ask(box, f"def f():\n    return len(bytearray({Limits().memory // 2}))") == Limits().memory // 2


@needs_sandbox
def test_processes_have_a_limit_and_die_with_the_child(box):
    source = """
import os, time
def f():
    n = 0
    try:
        while n < 500:
            if os.fork() == 0:
                os.setsid()
                os.execvp("sleep", ["sleep", "424242"])
            n += 1
    except OSError:
        return n
"""
    assert 5 < ask(box, source) <= Limits().processes
    deadline = time.monotonic() + 5
    while alive := [p for p in psutil.process_iter(["cmdline"]) if "424242" in (p.info["cmdline"] or [])]:
        assert time.monotonic() < deadline, f"still running: {alive}"
        time.sleep(0.05)


@needs_sandbox
def test_children_do_not_meet(box):
    assert ask(box, "import builtins\nbuiltins.left = 1\nopen('/tmp/left', 'w')\ndef f():\n    return 1") == 1
    assert ask(box, "import builtins, os\ndef f():\n    return [hasattr(builtins, 'left'), os.listdir('/tmp')]") == [False, []]


def test_where_there_is_no_sandbox_it_says_why(monkeypatch):
    monkeypatch.setattr(sandbox, "unavailable", lambda: "no bubblewrap here")
    with pytest.raises(sandbox.SandboxError, match="no bubblewrap here"):
        Sandbox()


# -- the conversation --------------------------------------------------------------------------------------------------


class Counter:
    """An object of the judge's with one method that is handed out."""

    exposed = ("next",)

    def __init__(self):
        self.count = 0

    def next(self):
        self.count += 1
        return self.count

    def secret(self):
        raise AssertionError("not exposed")


def test_objects_stay_where_they_are(open_box):
    session = Session(open_box.open())
    counter = Counter()
    with session.time_limit(10):
        session.request("cell", name="a", source="""
class Box:
    def __init__(self, n): self.n = n
    def add(self, m): self.n += m; return self.n
def f(counter): return [counter.next(), counter.next()]
def g(function, box): return function(box)
def h(counter): return counter.secret()
""")  # fmt: skip
        assert RemoteFunction(session, "f")(counter) == [1, 2]
        box = RemoteFunction(session, "Box")(5)
        assert isinstance(box, RemoteObject)
        assert (box.n, box.add(2), box.n) == (5, 7, 7)
        assert (
            RemoteFunction(session, "g")(lambda box: box.add(10) + 1, box) == 18
        )  # our function, called by theirs, calls theirs
        with pytest.raises(core.Elsewhere) as raised:
            RemoteFunction(session, "h")(counter)
        assert raised.value.kind == "TypeError"
        assert session._lent == [], "what was lent for a call is forgotten after it"
    session.close()


SPYING_STEP = """
kinds = set()
def spec_step(prefix, target, draft, k, rng):
    things = target, draft, rng, rng.uniform
    kinds.add((*map(type, things), *(tuple(dir(thing)) for thing in things)))
    rng.uniform()
    target(prefix)
    draft(prefix)
    return [rng.categorical(target(prefix))]
def seen():
    return len(kinds)
"""


def test_what_is_lent_has_the_type_of_what_is_asked(open_box):
    """A step may not be one where each question is heard and another where thousands are asked for at once."""
    session = Session(open_box.open())
    with session.time_limit(20):
        session.request("cell", name="a", source=SPYING_STEP)
        step, tables = RemoteFunction(session, "spec_step"), step_tables.grid_tables(1, k=1)
        stepping.emitted_tokens(step, stepping.PREFIX, stepping.Models(tables), 1, stepping.Sampling(0).row())
        assert len(stepping.sampled_tokens(step, [stepping.PREFIX] * 50, tables, 1, "seed", audited=5)) == 50
        stepping.law_of_step(step, tables, stepping.PREFIX, 1)
        assert RemoteFunction(session, "seen")() == 1
    session.close()


TELLING_STEP = """
def spec_step(prefix, target, draft, k, rng):
    rng.uniform()
    asked.append([(model, ids, (target, draft)[model](ids)) for model in (0, 1) for ids in behind(prefix, k + 1)])
    return [rng.categorical(target(prefix))]
asked = []
def behind(prefix, most):
    found = [tuple(prefix)]
    for ids in found:
        if len(ids) < len(prefix) + most:
            found += [(*ids, token) for token in range(len(target_of(prefix)))]
    return found
def told(vocabulary):
    global target_of
    target_of = lambda prefix: range(vocabulary)
def seen():
    return asked
"""


@pytest.mark.parametrize("k", [0, 1, 2])
def test_what_is_lent_in_advance_is_what_a_question_is_answered_with(open_box, k):
    """Up to k tokens behind a prefix the rows are there; behind that the judge is asked. Both are the tables', to the last bit."""
    session, sent = Session(open_box.open()), []
    plain_send, session._send = session._send, lambda message: (sent.append(message), plain_send(message))
    with session.time_limit(20):
        session.request("cell", name="a", source=TELLING_STEP)
        step, tables = RemoteFunction(session, "spec_step"), step_tables.text_tables(3)
        vocabulary = len(tables(stepping.PREFIX)[0])
        RemoteFunction(session, "told")(vocabulary)
        prefixes = [stepping.PREFIX, (*stepping.PREFIX, 1)]
        stepping.sampled_tokens(step, prefixes, tables, k, "seed", audited=0)
        answers = sum("answer" in message for message in sent)
        asked = RemoteFunction(session, "seen")()
    session.close()
    lent_rows = {ids for prefix in prefixes for ids in lent.within(prefix, k, vocabulary)}
    not_lent = {ids for prefix in prefixes for ids in lent.within(prefix, k + 1, vocabulary)} - lent_rows
    assert answers == 1 + 2 * len(not_lent), "one block of numbers, and each prefix that was not lent, of both models"
    assert {tuple(ids) for one in asked for _, ids, _ in one} == lent_rows | not_lent
    assert all(tuple(told) == tuple(tables(tuple(ids))[model]) for one in asked for model, ids, told in one)


def test_a_check_that_has_seen_enough_stops_their_code(open_box):
    session = Session(open_box.open())

    def model(prefix):
        raise core.Wrong("seen enough")

    source = "def f(model):\n    while True:\n        try:\n            model(1)\n        except Exception:\n            pass"
    with session.time_limit(10):
        session.request("cell", name="a", source=source)
        with pytest.raises(core.Wrong, match="seen enough"):
            RemoteFunction(session, "f")(model)
    session.close()


def test_an_exception_comes_as_what_it_is_with_its_line(open_box):
    with pytest.raises(ZeroDivisionError) as raised:
        ask(open_box, "def f(x):\n    return 1 / x", 0)
    assert (raised.value.kind, raised.value.line) == ("ZeroDivisionError", "ZeroDivisionError in f, line 2: return 1 / x")
    with pytest.raises(NotImplementedError) as raised:
        ask(open_box, "def g():\n    raise NotImplementedError\ndef f():\n    return g()")
    assert raised.value.stub == "g"


def test_magics_and_prints_do_no_harm(open_box):
    assert ask(open_box, "%matplotlib inline\n!ls\nprint('hello')\ndef f():\n    return 3") == 3
    assert ask(open_box, "%%time\ndef f():\n    return 4") == 4


def test_a_lost_child_stays_lost(open_box):
    session = Session(open_box.open())
    with session.time_limit(10):
        session.request("cell", name="a", source="import os\ndef f():\n    os._exit(0)")
        for _ in range(2):
            with pytest.raises(Lost, match="ended the Python process"):
                RemoteFunction(session, "f")()
    session.close()


@pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_sandbox), False])
def test_time_is_the_child_s_own(sandboxed, request):
    """A child that works is late after its seconds; one that sleeps, later, but before the clock shows several times that."""
    box = request.getfixturevalue("box" if sandboxed else "open_box")
    told = usage.queued_seconds([str(os.getpid())]) is not None
    slept = 0.5 * clock.SLEEP if told else 0.5 * clock.WALL
    for source, least in (("def f():\n    while True: pass", 0.5), ("import time\ndef f():\n    time.sleep(60)", slept)):
        began = time.monotonic()
        with pytest.raises(core.OutOfTime):
            ask(box, source, seconds=0.5)
        assert time.monotonic() - began >= least


def test_a_child_that_starves_is_not_late(monkeypatch):
    """It computes for a tenth of the time and stands in line for the rest, as beside many others. The control: it sleeps instead."""
    monkeypatch.setattr(clock, "AGAIN", 0.01)
    for queued, late in ((True, False), (False, True)):
        child = Starving(queued)
        session = Session(child)
        with session.time_limit(0.1):
            if late:
                with pytest.raises(core.OutOfTime):
                    session.request("defined", name="f")
            else:
                assert session.request("defined", name="f") is True
        child.socket.close()


class Starving:
    """A child that answers after its fifth look, in every one of which ten seconds in line, or of sleep, are reported."""

    def __init__(self, queued):
        self.socket, self._there = socket.socketpair()
        self._queued, self._looks = queued, 0

    def usage(self):
        self._looks += 1
        if self._looks == 5:
            text = b'{"dict":[["done",true]]}'
            self._there.sendall(struct.pack("<II", len(text), 0) + text)
        return clock.Usage(0.01 * self._looks, {"1": 10.0 * self._looks if self._queued else 0.0})


def test_what_is_late_is_told_in_the_same_words(open_box, monkeypatch):
    """The budget of all checks is what is left of it, which differs from run to run, and sleep ends a check before it."""
    monkeypatch.setattr(clock, "MOST_SLEEP", 0.3)
    for source, told in (("import time\ndef f(): time.sleep(9)", "20 s"), ("def f():\n while True: pass", "300 s")):
        session = Session(open_box.open())
        with session.time_limit(20):
            session.request("cell", name="a", source=source)
        with (
            pytest.raises(core.OutOfTime, match=f"not finished after {told}"),
            session.budget(0.4, 300),
            session.time_limit(20),
        ):
            RemoteFunction(session, "f")()
        session.close()


def test_a_child_that_will_not_say_what_it_printed_is_not_waited_for(open_box, monkeypatch):
    monkeypatch.setattr(session_module, "QUICK", 0.2)
    session = Session(open_box.open())
    source = "import gc, time\nfor thing in gc.get_objects():\n    if type(thing).__name__ == 'Responder':\n"
    source += "        thing.printed.take = lambda: time.sleep(1000)"
    with session.time_limit(30):
        session.request("cell", name="a", source=source)
        with session.printing() as printed:
            assert printed() == ""
    assert session.lost == "late"
    session.close()


# -- whole submissions -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judge():
    judge = Judge(Settings(unsafe=bool(sandbox.unavailable())))
    yield judge
    judge.close()


def mark(judge, **cells):
    """The solved exercise with other cells, by grade_id."""
    exercise = verdicts.exercise(A)
    notebook = zoo.filled(A, exercise.release)
    for cell in notebook.cells:
        cell.source = cells.get(cell.metadata.get("nbgrader", {}).get("grade_id", ""), cell.source)
    return judge.judge(exercise.job("somebody", course.text(notebook).encode()))


def test_a_cell_that_fails_costs_what_it_defines(judge):
    found = mark(judge, residual_dist="def residual_dist(p, q:\n    return p")
    assert [check.points > 0 for check in found.checks] == [True, False, False, False, False]
    assert found.checks[1].message == "residual_dist is not defined"
    assert "SyntaxError" in found.checks[1].got
    assert any("residual_dist raised SyntaxError" in note for note in found.notes)


def test_what_a_mark_keeps_is_bounded_and_the_same_in_every_run(judge):
    """Of a notebook that prints addresses in two thousand cells, each of which raises."""
    exercise = verdicts.exercise("04-speedup")
    notebook = zoo.filled("04-speedup", exercise.release)
    raises = "print(object())\nraise ValueError({}, str(object()) * 50)"
    raising = [nbformat.v4.new_code_cell(raises.format(n), id=f"raises-{n}") for n in range(200)]
    notebook.cells[2:2] = raising
    notebook.cells += [nbformat.v4.new_code_cell("def speedup(alpha, k, c): return object\ndel optimal_k", id="last")]
    told = [marks.to_json(judge.judge(exercise.job("somebody", course.text(notebook).encode()))) for _ in range(2)]
    assert all(len(text) < 50_000 for text in told)
    assert not [text for text in told if re.search(r"0x[0-9a-f]{6}", text)]
    timeless = [re.sub(r'"(seconds|sha256)": [^,\n]*', "", text) for text in told]
    assert timeless[0] == timeless[1]
    assert "and more cells" in told[0]


def test_a_crash_costs_its_check_and_the_others_go_on(judge):
    found = mark(judge, residual_dist="import os\ndef residual_dist(p, q):\n    os._exit(0)")
    assert found.status == "crashed"
    assert [check.points > 0 for check in found.checks] == [True, False, False, False, False]
    assert "ended the Python process" in found.checks[1].message


@pytest.mark.parametrize(
    ("assignment", "name", "points"),
    [(A, "accept_divides_by_zero", 1.0), ("04-speedup", "tokens_zero_division", 1.5), ("04-speedup", "tokens_all", 0.0)],
)
def test_where_only_a_limit_is_wrong_half_of_the_points_stay(judge, assignment, name, points):
    found = verdicts.judged(zoo.case("wrong", assignment, name), judge)
    assert found.checks[0].points == points


def test_a_stub_is_not_written_yet(judge):
    found = judge.judge(verdicts.exercise(A).job("somebody", course.text(released(A)).encode()))
    assert [check.message for check in found.checks][:2] == [
        "accept_or_reject is not written yet",
        "residual_dist is not written yet",
    ]
    assert found.score == 0


def test_seeds_are_the_student_s_the_submission_s_and_the_secret_s():
    exercise, first = verdicts.exercise(A), verdicts.exercise(A).seed("a", "1")
    assert exercise.seed("a", "1") == first != exercise.seed("b", "1")
    assert first != exercise.seed("a", "2"), "the seed on a page must not help who hands in once more"
    assert first != Exercise(A, exercise.release, "another").seed("a", "1")
    handed_in = [course.text(released(A)).encode(), course.text(zoo.filled(A, released(A))).encode()]
    assert len({exercise.job("a", content).seed for content in handed_in}) == 2


def test_a_version_changes_with_what_can_change_a_mark(monkeypatch):
    exercise = verdicts.exercise(A)
    assert exercise.version == Exercise(A, exercise.release, "zoo").version
    assert exercise.version != Exercise(A, exercise.release, "another").version
    other = released(A)
    other.cells[0].source += " "
    assert exercise.version != Exercise(A, other, "zoo").version
    imported = module._imported("autograder.checks.02_rejection_rule")
    assert {
        "autograder.checks.stepping",
        "autograder.checks.rejection_mistakes",
        "specdec.law",
        "specdec.statistics",
    } <= imported
    assert "autograder.checks.04_speedup" not in imported, "a change to another chapter's checks must regrade nothing here"


@needs_sandbox
def test_no_canary_comes_out_and_no_file_goes_in(tmp_path, monkeypatch, judge):
    """Planted among the solutions, the checks, in a gradebook, in the environment and in this process; searched by the zoo's readers."""
    canary = "CANARY-" + os.urandom(8).hex()
    places = [
        course.ROOT / "solutions" / "canary.txt",
        course.ROOT / "autograder" / "checks" / "canary.txt",
        tmp_path / "gradebook.db",
    ]
    monkeypatch.setenv("SPECDEC_CANARY", canary)
    monkeypatch.setattr(
        importlib.import_module("autograder.checks.02_rejection_rule"), "TEXTS", {3: 50}
    )  # the marks do not matter here
    readers = (
        "reads_solutions",
        "reads_gradebook",
        "reads_environment",
        "reads_parent",
        "reads_objects",
        "writes_results",
        "pickles",
    )
    cases = [case for case in zoo.cases("cheat") if case.path.stem in readers]
    assert len(cases) == len(readers)
    try:
        for place in places:
            place.write_text(canary)
        process = subprocess.Popen(["sleep", "60"], env={"SPECDEC_CANARY": canary})
        told = [marks.to_json(verdicts.judged(case, judge)) for case in cases]
        unsafe = Judge(Settings(unsafe=True))
        control = marks.to_json(verdicts.judged(cases[[case.path.stem for case in cases].index("reads_environment")], unsafe))
        unsafe.close()
    finally:
        process.kill()
        process.wait()
        for place in places:
            place.unlink(missing_ok=True)
    assert not [case for case, text in zip(cases, told) if canary in text]
    assert canary in control or os.getuid() == 0, "without a sandbox the canary must be in sight, or this test shows nothing"
    assert not list(course.ROOT.rglob("cheat-was-here*"))
    assert not (course.ROOT / "results.json").exists()


@needs_sandbox
def test_after_a_cheat_the_next_submission_has_its_marks():
    judge = Judge()
    try:
        for name in ("patched_builtins", "takes_over_responder", "exits_at_once", "floods_wire"):
            verdicts.judged(zoo.case("cheat", A, name), judge)
            found = judge.judge(verdicts.exercise(A).job("right", course.text(zoo.filled(A, released(A))).encode()))
            assert found.score == found.max_score, f"after {name}: {found.message}"
    finally:
        judge.close()


def test_the_zoo_has_what_it_should():
    by_kind = {kind: zoo.cases(kind) for kind in ("right", "wrong", "cheat")}
    assert all(len(zoo.cases("right", assignment)) >= 3 for assignment in course.assignments())
    assert len(by_kind["wrong"]) >= 40
    assert len(by_kind["cheat"]) >= 25
    for case in by_kind["cheat"]:
        assert case.cheats, f"{case} must say what it must get nothing for (Cheats: …)"
        assert set(case.cheats) <= set(zoo.checks(case.assignment))
    assert json.dumps(sorted(verdicts.SLOW - {case.path.stem for cases in by_kind.values() for case in cases})) == "[]"
