"""One rule for answers: what a check sees of a student's code is the same in the notebook and in grading."""

import array
import collections
import decimal
import enum
import fractions
import math

import numpy as np
import pytest
import torch

from autograder import checks, zoo
from autograder.checks import core
from autograder.inside import plain, wire
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


@pytest.mark.parametrize(("text", "advice"), [("later()", "write `def`"), ("lazy()", "`return` them")])
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


ASSIGNMENTS = {"02": "02-rejection-rule", "04": "04-speedup"}
