"""One rule for answers: what a check sees of a student's code is the same in the notebook and in grading."""

import array
import collections
import contextlib
import decimal
import enum
import fractions
import math

import numpy as np
import pytest
import torch

from autograder import checks, course, zoo
from autograder.checks import core, step_tables, stepping
from autograder.inside import plain, wire
from autograder.judging.judge import Exercise, released
from autograder.judging.sandbox import Sandbox
from autograder.judging.session import RemoteFunction, Session

# An expression, and what a check must see. The names are those of SETUP.
SETUP = """
import array, collections, decimal, enum, fractions, itertools
import numpy as np
import torch
Pair = collections.namedtuple("Pair", "k speed")
class Probabilities(list): pass
class Half(float): pass
async def later(): return 0.5
def lazy(): yield 0.5
class Count(int): pass
class Name(str): pass
class Level(enum.IntEnum):
    LOW = 2
class Measured:
    def __float__(self): return 0.25
class Many(collections.UserList): pass
class Tagged(torch.Tensor): pass
class Endless(collections.abc.Sequence):
    def __len__(self): return 3
    def __getitem__(self, i): return 1.0
async def waits(): return 1
def yields(): yield 1
async def waits_and_yields(): yield 1
class Lying(list):
    def __iter__(self): return itertools.count()
    def __len__(self): return 10**9
"""
RULE = [
    ("None", None), ("True", True), ("'0.5'", "0.5"), ("Name('a')", "a"), ("[1, (2.5, {3: None})]", [1, (2.5, {3: None})]),
    ("fractions.Fraction(1, 4)", 0.25), ("decimal.Decimal('0.25')", 0.25), ("np.longdouble(0.25)", 0.25), ("np.float32(0.25)", 0.25),
    ("Half(0.25)", 0.25), ("Measured()", 0.25), ("torch.tensor(0.25, dtype=torch.bfloat16)", 0.25), ("np.array(0.25)", 0.25),
    ("np.int64(7)", 7), ("np.uint8(7)", 7), ("torch.tensor(7)", 7), ("torch.tensor(7, dtype=torch.uint16)", 7), ("np.array(7)", 7),
    ("Count(7)", 7), ("Level.LOW", 2), ("10**400", 10**400), ("np.bool_(True)", True), ("torch.tensor(False)", False),
    ("Pair(3, fractions.Fraction(5, 2))", (3, 2.5)), ("Probabilities([0.5, Half(0.5)])", [0.5, 0.5]), ("range(3)", [0, 1, 2]),
    ("Many([1, 2])", [1, 2]), ("collections.deque([1, 2])", [1, 2]), ("array.array('d', [0.5])", [0.5]),
    ("Lying([1, 2])", [1, 2]),
    ("collections.OrderedDict(a=1)", {"a": 1}), ("torch.Size([2, 3])", (2, 3)), ("[torch.tensor(1), np.int32(2)]", [1, 2]),
    ("np.array([fractions.Fraction(1, 4), 1], dtype=object)", [0.25, 1]), ("np.array([0.25], dtype=np.longdouble)", [0.25]),
    ("np.array([1, 2], dtype=np.uint32)", [1, 2]), ("np.array(['a'])", ["a"]), ("np.str_('a')", "a"), ("float('inf')", math.inf),
]  # fmt: skip
ARRAYS = [
    ("np.array([0.25, 1.0], dtype='>f8')", [0.25, 1.0]), ("np.matrix([[1, 2]])", [[1, 2]]), ("np.ma.array([1.0, 2.0])", [1.0, 2.0]),
    ("torch.tensor([0.5, 0.5])", [0.5, 0.5]), ("torch.nn.Parameter(torch.ones(2))", [1.0, 1.0]), ("Tagged([1.0])", [1.0]),
    ("torch.tensor([1.0, 0.0]).to_sparse()", [1.0, 0.0]), ("torch.tensor([[1, 2]]).T", [[1], [2]]),
]  # fmt: skip
REFUSED = [
    "waits()", "yields()", "waits_and_yields()", "[waits()]",
    "{0.5}", "frozenset([1])", "(x for x in [1])", "map(int, '1')", "{1: 2}.values()", "b'ab'", "bytearray(2)", "1j", "np.complex64(1)",
    "torch.tensor(1j)", "itertools.count()", "10**5000", "np.datetime64('2020-01-01')", "iter([1])", "memoryview(b'a')", "object()",
    "[0] * 300_000", "range(10**12)", "np.zeros(300_000, dtype=np.uint32)", "[[{1}]]", "loop", "Endless()", "collections.ChainMap()",
]  # fmt: skip


@pytest.fixture(scope="module")
def session():
    with Sandbox(unsafe=True) as box:
        session = Session(box.open())
        with session.time_limit(60):
            session.request("cell", name="setup", source=SETUP + "loop = []\nloop.append(loop)\ndef f(text): return eval(text)")
            yield session
        session.close()


@pytest.fixture(scope="module")
def notebook():
    names = {"__name__": "__main__"}
    exec(SETUP + "loop = []\nloop.append(loop)", names)
    return lambda text: eval(text, names)


def same(value):
    """With types, so that 1 is neither True nor 1.0."""
    if isinstance(value, (list, tuple)):
        return type(value), [same(item) for item in value]
    if isinstance(value, dict):
        return dict, [(same(key), same(item)) for key, item in value.items()]
    return type(value), value


@pytest.mark.parametrize(("text", "seen"), RULE, ids=[text for text, _ in RULE])
def test_a_check_sees_the_same_on_both_sides(session, notebook, text, seen):
    assert same(core.call(notebook, text)) == same(seen)
    assert same(core.call(RemoteFunction(session, "f"), text)) == same(seen)


@pytest.mark.parametrize(("text", "seen"), ARRAYS, ids=[text for text, _ in ARRAYS])
def test_arrays_stay_arrays_on_both_sides(session, notebook, text, seen):
    for found in (core.call(notebook, text), core.call(RemoteFunction(session, "f"), text)):
        assert type(found) in (np.ndarray, torch.Tensor, torch.nn.Parameter)
        assert found.tolist() == seen


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_is_refused_on_both_sides_in_the_same_words(session, notebook, text):
    said = []
    for function in (notebook, RemoteFunction(session, "f")):
        with pytest.raises(core.Wrong, match="your code returned") as wrong:
            core.call(function, text)
        said.append(wrong.value.result.message)
    assert said[0] == said[1]


@pytest.mark.parametrize(("text", "advice"), [("later()", "write `def`"), ("lazy()", "write `return`")])
def test_a_function_that_has_not_done_its_work_is_told_so_on_both_sides(session, notebook, text, advice):
    for function in (notebook, RemoteFunction(session, "f")):
        with pytest.raises(core.Wrong) as wrong:
            core.call(function, text)
        assert advice in wrong.value.result.message


def test_tensors_and_caches_stay_the_student_s_own():
    class Cache(list):
        """Has a list's type, and is an object all the same: a class was called for it."""

    tensor = torch.ones(3)
    assert core.call(lambda: tensor) is tensor
    assert type(core.call(Cache)) is Cache
    assert core.call(lambda: Cache) is Cache


def test_an_instance_of_a_list_s_subclass_stays_on_the_other_side(session):
    session.request(
        "cell", name="cache", source="class Cache(list):\n    length = torch.tensor(3)\n    def read(self): return (1,)"
    )
    cache = core.call(RemoteFunction(session, "Cache"))
    assert (cache.length, cache.read()) == (3, (1,))


def test_a_cell_s_own_module_may_have_the_class(session):
    source = "import types\nm = types.ModuleType('mine')\nexec('class Cache:\\n    length = 2', m.__dict__)\ndef make(): return m.Cache()"
    session.request("cell", name="module", source=source)
    assert core.call(RemoteFunction(session, "make")).length == 2


@pytest.mark.parametrize(
    "text", ["'0.5'", "['0.5', '0.5']", "{0: 1}", "[[0.5]]", "None", "'12'", "10**400", "np.zeros((2, 2))"]
)
def test_numbers_are_read_strictly(notebook, text):
    value = plain.plain(notebook(text))
    for read in (plain.number, plain.whole, plain.vector):
        if not (read is plain.whole and text == "10**400"):
            with pytest.raises(ValueError):
                read(value)


def test_what_is_a_number_is_read_as_one():
    assert [plain.number(x) for x in (1, True, 0.5, torch.tensor([0.5]))] == [1.0, 1.0, 0.5, 0.5]
    assert [plain.whole(x) for x in (3, 3.0, True, 10**400)] == [3, 3, 1, 10**400]
    for bad in (3.5, math.inf, math.nan):
        with pytest.raises(ValueError, match="no whole number"):
            plain.whole(bad)
    assert (
        plain.vector(torch.tensor([[0.5], [1.0]]))
        == plain.vector(np.array([0.5, 1]))
        == plain.vector([0.5, True])
        == [0.5, 1.0]
    )


def test_the_wire_carries_what_the_rule_keeps():
    for name in plain.DTYPES:
        tensor = torch.zeros(2, dtype=getattr(torch, name))
        assert plain.plain(tensor) is tensor
        assert wire._array_bytes(tensor)[1] == name


@pytest.mark.parametrize(
    "value", [[0] * 10**7, "a" * 10**7, torch.zeros(10**6), {n: n for n in range(10**5)}, 10**5000, [[[[[[1]]]]]]], ids=type
)
def test_what_is_shown_is_short(value):
    assert 0 < len(plain.shown(value)) <= plain.MOST_SHOWN


def test_what_is_shown_is_the_same_in_every_run():
    class Evil:
        def __repr__(self):
            raise RuntimeError

    assert "0x…" in plain.shown([lambda: None])
    assert plain.shown(Evil()) == plain.shown(Evil())
    assert "0x7" not in plain.shown(Evil()) + plain.shown(object())


# -- exercises ---------------------------------------------------------------------------------------------------------


def wrapped(assignment, check, around):
    """The right functions of a check, their answers put through `around`."""
    names = zoo.functions(assignment)
    return [lambda *args, name=name: around(names[name](*args)) for name in zoo.checks(assignment)[check]]


@pytest.mark.parametrize(
    ("check", "around"),
    [
        ("04.expected_tokens", fractions.Fraction), ("04.expected_tokens", np.longdouble), ("04.speedup", torch.tensor),
        ("04.speedup", decimal.Decimal), ("04.optimal_k", lambda pair: collections.namedtuple("Best", "k s")(*pair)),
        ("04.optimal_k", np.array), ("02.residual_dist", lambda p: array.array("d", p)), ("02.residual_dist", collections.deque),
        ("02.accept_or_reject", np.bool_), ("02.accept_or_reject", enum.IntEnum("Yes", {"NO": 0, "YES": 1})),
    ],
)  # fmt: skip
def test_right_answers_of_odd_types_pass(check, around):
    result = checks.run(check, *wrapped(ASSIGNMENTS[check[:2]], check, around))
    assert result.passed, result


@pytest.mark.parametrize(
    ("check", "around"),
    [("04.expected_tokens", str), ("04.optimal_k", lambda pair: [str(x) for x in pair]), ("02.residual_dist", lambda p: list(map(str, p))),
     ("02.accept_or_reject", lambda yes: str(int(yes))), ("02.residual_dist", set), ("02.residual_dist", iter)],
)  # fmt: skip
def test_text_and_what_cannot_be_carried_fails_in_the_notebook_too(check, around):
    assert not checks.run(check, *wrapped(ASSIGNMENTS[check[:2]], check, around)).passed


# What stands where a number is asked, and whether it is one: the same in an answer and in what is drawn from, in all ways of asking.
AS_A_NUMBER = [
    ("1.0", True), ("1", True), ("True", True), ("np.bool_(True)", True), ("fractions.Fraction(1)", True), ("torch.tensor(1.0)", True),
    ("torch.tensor([1.0])", True), ("Half(1.0)", True), ("Count(1)", True),
    ("'1.0'", False), ("np.str_('1.0')", False), ("b'1'", False), ("bytearray(b'1')", False), ("1 + 0j", False),
    ("np.complex64(1)", False), ("torch.tensor(1 + 0j)", False), ("None", False), ("[1.0]", False), ("{1.0}", False), ("object", False),
]  # fmt: skip
# And as a whole list of probabilities.
AS_A_LIST = [
    ("[0.0, 1.0]", True), ("(0.0, 1.0)", True), ("np.array([0, 1])", True), ("np.array([False, True])", True),
    ("torch.tensor([0.0, 1.0])", True), ("collections.deque([0.0, 1.0])", True), ("range(2)", True),
    ("'01'", False), ("b'\\0\\1'", False), ("np.array(['0', '1'])", False), ("np.array([0j, 1])", False), ("torch.tensor([0j, 1])", False),
    ("{0.0, 1.0}", False), ("{0: 1}", False), ("(x for x in (0.0, 1.0))", False), ("iter([0.0, 1.0])", False), ("None", False),
    ("1.0", False), ("[None, 1.0]", False), ("[0.0, '1.0']", False), ("[[0.0, 1.0]]", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "right"),
    [(f"[0.0, {text}]", right) for text, right in AS_A_NUMBER] + AS_A_LIST,
    ids=[f"number {text}" for text, _ in AS_A_NUMBER] + [text for text, _ in AS_A_LIST],
)
def test_what_a_number_is_is_the_same_everywhere(session, notebook, text, right):
    """Answered and drawn from, in the notebook and in another process: there with every question heard, with numbers lent, and under a
    script."""

    def step(prefix, target, draft, k, rng):
        return [rng.categorical(notebook(text))]

    source = f"def step(prefix, target, draft, k, rng):\n    target(prefix), draft(prefix)\n    return [rng.categorical({text})]"
    session.request("cell", name="step", source=source)
    remote, tables = RemoteFunction(session, "step"), step_tables.grid_tables(1, k=1)
    models = stepping.Models(tables)
    asked = [
        lambda: plain.vector(core.call(notebook, text)),
        lambda: plain.vector(core.call(RemoteFunction(session, "f"), text)),
        lambda: core.call(step, (0,), None, None, 1, stepping.Sampling(0).row()),
        lambda: core.call(remote, (0,), models.target, models.draft, 1, stepping.Sampling(0).row()),
        lambda: core.call(session.steps, remote, [(0,)], models, 1, stepping.Sampling(0)),
        lambda: stepping.law_of_step(remote, tables, (0,), 1),
    ]
    found = []
    for one in asked:
        try:
            one()
            found.append("")
        except core.Wrong as wrong:
            found.append(wrong.result.message)
        except ValueError as error:
            found.append(str(error))
    assert [not said for said in found] == [right] * len(asked), found
    assert right or set(found[2:]) == {"rng.categorical got something that is no list of probabilities"}


WAITING = """
def waiting(function):
    async def asked(*args):
        return function(*args)
    return asked
def yielding(function):
    def asked(*args):
        yield function(*args)
    return asked
"""
ASKED = [(assignment, check) for assignment in course.assignments() for check in zoo.checks(assignment)]


@pytest.mark.parametrize(("assignment", "check"), ASKED, ids=[check for _, check in ASKED])
def test_a_function_that_has_not_run_is_named_on_both_sides(judged, assignment, check):
    """Every function that any check asks for, begun with `async def`, and with `yield` in place of `return`."""
    ours, names = zoo.functions(assignment), {}
    exec(WAITING, names)
    session = judged(assignment)
    for way, said in (("waiting", "a coroutine, as every function"), ("yielding", "a generator, which `yield`")):
        asked = zoo.checks(assignment)[check]
        functions = [ours[name] if isinstance(ours[name], type) else names[way](ours[name]) for name in asked]
        if functions == [ours[name] for name in asked]:
            continue  # a class alone
        results = [checks.run(check, *functions)]
        remote = [name if isinstance(ours[name], type) else f"{way}_{name}" for name in asked]
        session.request("cell", name="a", source="\n".join(f"{way}_{name} = {way}({name})" for name in asked))
        results.append(core.run(check, *(RemoteFunction(session, name) for name in remote), host=session))
        assert [said in result.message for result in results] == [True, True], results


@pytest.fixture(scope="module")
def judged():
    """A session in which the right solutions of an assignment are, by its name."""
    open_sessions = {}
    with Sandbox(unsafe=True) as box:

        def opened(assignment):
            if assignment not in open_sessions:
                exercise = Exercise(assignment, released(assignment))
                session = open_sessions[assignment] = Session(box.open(exercise.given))
                cells = exercise.job("x", course.text(zoo.filled(assignment, exercise.release)).encode()).cells
                for source in (*(cell.source for cell in cells), WAITING):
                    with contextlib.suppress(core.Elsewhere):
                        session.request("cell", name="a", source=source)
            return open_sessions[assignment]

        yield opened
        for session in open_sessions.values():
            session.close()


ASSIGNMENTS = {"02": "02-rejection-rule", "04": "04-speedup"}
