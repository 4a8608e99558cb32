"""Memory: what a text needs is allocated when it begins, nothing grows with its length, and nothing outlives it.

Three measures. Live tensors, found by the garbage collector, in bytes of storage: exact, and blind to what a kernel needs for a
moment. Live Python objects, by type. And what each operation of the cache allocates, seen by a dispatch mode that looks at every
tensor which comes out of an operation with a storage of its own.
"""

import gc
import weakref
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

import drafters_under_test
import pytest
import torch
from drafters_under_test import DRAFTERS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specdec import decoding
from specdec.cache import KVCache
from specdec.config import Config
from specdec.decoding import generate, rounds, stream
from specdec.distributions import Sampling
from specdec.drafters import PromptLookup
from specdec.models.transformer import Transformer, random_model
from specdec.uniforms import Uniforms

PROMPT, V, LONG = [1, 2, 3, 1, 2], 11, 2048
NAMES = ["none", *DRAFTERS]
# For the long tests one form of each: their chains run the same code.
ONE_FORM_OF_EACH = [
    "none", "draft tree", "itself", "medusa tree", "eagle-1 tree", "eagle-3 tree", "lookahead tree", "prompt lookup tree",
    "combined trees",
]  # fmt: skip


def model(seed=1, layers=2, max_length=LONG):
    return random_model(Config(V, 16, layers, 4, 2, 4, 32, max_length=max_length), seed, torch.float64, 1.5)


def drafter_of(name, target, monkeypatch):
    """That of the other tests, but with a draft model whose context is as long as the target's."""
    monkeypatch.setattr(drafters_under_test, "draft_of", lambda target: model(2, 1, target.config.max_length))
    return DRAFTERS[name](target) if name != "none" else None


@pytest.fixture
def target():
    return model()


@pytest.fixture(scope="module", autouse=True)
def _thaw():
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _only_what_is_new():
    """The collector sets aside what was there before the test, and so looks through a hundred objects and not through all of PyTorch."""
    gc.collect()
    gc.freeze()


def tensors():
    """All live ones that are new in this test. Asked for their type, since `isinstance` would wake lazy modules."""
    return [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]


def tensor_bytes():
    """Of all live tensors; what shares a storage counts once."""
    storages = [x.untyped_storage() for x in tensors()]
    return sum({s.data_ptr(): s.nbytes() for s in storages if s.nbytes()}.values())


def storage(cache):
    return [(x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()) for x in (cache.keys, cache.values, cache.starts)]


def caches_in(proposer):
    """A proposer's own caches, and those of the proposers that it combines."""
    parts = [getattr(proposer, name) for name in ("first", "second") if hasattr(proposer, name)]
    return [one.cache for one in [proposer, *parts] if hasattr(one, "cache")]


# One long text.


SLACK = 192  # bytes: rounds differ in how much of a tree they accept, and a head keeps the features of that; a growing state does more


ALLOWED = ("tuple", "ReferenceType", "builtin_function_or_method")  # keys of n-gram tables; what abstract base classes remember


def growth(target, drafter, cache, tokens, early, late, sampling=Sampling()):
    """What is wrong with the memory of a text of so many tokens; nothing if all is well.

    Compares the windows of the text that begin at `early` and at `late` new tokens: the most bytes of live tensors, and the live
    objects of each type. Tables of whole numbers are allowed to grow: `committed`, and an n-gram table, whose keys are tuples.
    """
    generate(target, PROMPT, drafter, sampling, 4)  # what is set up once in a process
    request = decoding.Request.begin(target, list(PROMPT), tokens, drafter, sampling, Uniforms(3))
    caches = [cache, *caches_in(request.proposer)]
    before = [storage(one) for one in caches]
    bytes_in, objects_in, made = {early: 0, late: 0}, {}, 0
    at: dict[int, int] = {}  # the round in which each window begins
    for number, (round,) in enumerate(rounds(target, cache, [request], sampling)):
        made += len(round.tokens)
        for start in bytes_in:
            if start <= made < start + 20:
                gc.collect()  # a generator of uniforms is a cycle
                bytes_in[start] = max(bytes_in[start], tensor_bytes())
                if start not in at:
                    at[start], objects_in[start] = number, Counter(type(x).__qualname__ for x in gc.get_objects())
    problems = []
    if [storage(one) for one in caches] != before:
        problems.append("a cache's keys, values or starts do not lie where they lay when the text began: something was allocated anew")
    if bytes_in[late] > bytes_in[early] + SLACK:
        problems.append(
            f"live tensors had {bytes_in[early]} bytes after {early} new tokens and {bytes_in[late]} after {late}: "
            "find the tensor, or the list of tensors, that grows with the text"
        )
    more, apart = objects_in[late] - objects_in[early], at[late] - at[early]
    grown = {name: n for name, n in more.items() if n > apart / 2 and name not in ALLOWED}
    if grown:
        problems.append(f"objects that became more between {early} and {late} new tokens: {grown}")
    return problems


def room_for(target, drafter, tokens):
    return target.new_cache(len(PROMPT) + tokens - 1 + (drafter.max_nodes if drafter else 0))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_grows_with_the_text(target, name, monkeypatch):
    drafter = drafter_of(name, target, monkeypatch)
    assert not growth(target, drafter, room_for(target, drafter, 90), 90, 10, 70)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_FORM_OF_EACH)
def test_nothing_grows_with_a_text_of_2000_tokens(target, name, monkeypatch):
    drafter = drafter_of(name, target, monkeypatch)
    assert not growth(target, drafter, room_for(target, drafter, 2000), 2000, 500, 1900)


class Keeping:
    """Faulty: a proposer that keeps the features of every round."""

    max_nodes = 3

    def start(self, target, sampling, max_length):
        self.inner, self.kept = PromptLookup(2, 3).start(target, sampling, max_length), []
        self.propose = self.inner.propose
        return self

    def observe(self, outcome):
        self.kept.append(outcome.hidden[-1:].clone())


class Concatenating(KVCache):
    """Faulty: appends by making longer tensors."""

    def require(self, new_tokens):
        self.keys = torch.cat([self.keys, self.keys.new_zeros(*self.keys.shape[:3], new_tokens, self.keys.shape[-1])], dim=3)
        super().require(new_tokens)

    def move(self, slots, start):
        self.keys = self.keys.clone()
        super().move(slots, start)


def test_negative_control_a_drafter_that_keeps_features_is_caught(target):
    drafter = Keeping()
    problems = growth(target, drafter, room_for(target, drafter, 160), 160, 20, 140)
    assert any("live tensors had" in problem for problem in problems)
    assert any("objects that became more" in problem and "'Tensor'" in problem for problem in problems)


def test_negative_control_a_cache_that_concatenates_is_caught(target):
    cache = Concatenating(target.config, 1, 200, dtype=target.dtype)
    problems = growth(target, None, cache, 160, 20, 140)
    assert any("allocated anew" in problem for problem in problems)
    assert any("live tensors had" in problem for problem in problems)


@pytest.mark.parametrize("name", ["none", "draft tree", "eagle-3 tree", "lookahead tree", "combined trees"])
def test_a_batch_keeps_its_storage_while_rows_end(target, name, monkeypatch):
    drafter, texts = drafter_of(name, target, monkeypatch), [PROMPT, PROMPT[:2], PROMPT[:4]]
    requests = [decoding.Request.begin(target, list(t), 8 * (i + 1), drafter, Sampling(), Uniforms(i)) for i, t in enumerate(texts)]
    cache = target.new_cache(64, 3)
    before, live = storage(cache), set()
    for _ in rounds(target, cache, requests):
        live.add(cache.batch_size)
        assert storage(cache) == before
    assert live == {1, 2, 3}, "rows must end one after the other, or this test shows nothing"


# Many texts.


def leaks(run, times):
    """What is left of `times` runs; nothing if all is well. What a first run sets up once is not counted."""
    for _ in range(3):
        run()
    counts, sizes, found = [], [], []
    for repetitions in (0, times):
        for _ in range(repetitions):
            run()
        gc.collect()
        found.append(len(tensors()))
        sizes.append(tensor_bytes())
        counts.append(Counter(type(x).__qualname__ for x in gc.get_objects()))
    problems = []
    if found[1] > found[0] or sizes[1] > sizes[0]:
        problems.append(
            f"{times} generations left {found[1] - found[0]} tensors of {sizes[1] - sizes[0]} bytes behind: who refers to them still?"
        )
    grown = {name: n for name, n in (counts[1] - counts[0]).items() if n >= times / 2}
    if grown:
        problems.append(f"{times} generations left objects behind: {grown}")
    return problems


def break_off(steps):
    next(steps)
    next(steps)


class Broken(Exception):
    """Thrown inside a round."""


@contextmanager
def broken_rounds(target, monkeypatch):
    """The target breaks when it has run 3 times."""
    left, forward = [3], Transformer.forward

    def forward_until(self, *arguments, **options):
        left[0] -= self is target
        if not left[0]:
            raise Broken
        return forward(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Transformer, "forward", forward_until)
        yield


def three_endings(target, drafter, monkeypatch, sampling=Sampling(), new_tokens=8):
    """A generation that ends, one that is abandoned half way, and one in which an exception is thrown inside a round."""
    generate(target, PROMPT, drafter, sampling, new_tokens)
    break_off(stream(target, PROMPT, drafter, sampling, 30))
    with broken_rounds(target, monkeypatch):
        try:
            generate(target, PROMPT, drafter, sampling, 30)
        except Broken:
            return
    raise AssertionError("the exception must come out of the round")


@pytest.mark.parametrize("name", NAMES)
def test_generations_leave_nothing_behind(target, name, monkeypatch):
    drafter = drafter_of(name, target, monkeypatch)
    assert not leaks(lambda: three_endings(target, drafter, monkeypatch, new_tokens=4), times=5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_FORM_OF_EACH)
def test_a_thousand_generations_leave_nothing_behind(target, name, monkeypatch):
    psutil = pytest.importorskip("psutil", reason="measures the memory of the process; it comes with the extra 'grade'")
    drafter, process = drafter_of(name, target, monkeypatch), psutil.Process()
    run = lambda: generate(target, PROMPT, drafter, Sampling(), 4)  # noqa: E731
    for _ in range(50):
        run()
    before = process.memory_info().rss
    assert not leaks(run, times=1000)
    grown = process.memory_info().rss - before
    assert grown < 2 << 20, f"the process grew by {grown} bytes in 1,000 generations, which is more than 2 KB each"


def test_negative_control_what_remembers_its_proposers_is_caught(target):
    @dataclass(frozen=True)
    class Remembering(PromptLookup):
        proposers: list = field(default_factory=list)

        def start(self, target, sampling, max_length):
            self.proposers.append((super().start(target, sampling, max_length), torch.zeros(3)))
            return self.proposers[-1][0]

    drafter = Remembering()
    problems = leaks(lambda: generate(target, PROMPT, drafter, max_new_tokens=4), times=8)
    assert any("left 8 tensors of 96 bytes" in problem for problem in problems)
    assert any("left objects behind" in problem and "_Proposer" in problem for problem in problems)


@contextmanager
def watched(monkeypatch):
    """Weak references to every cache that is made, and to every request with its proposer and their parts."""
    refs, init, begin = [], KVCache.__init__, decoding.Request.begin.__func__

    def noted_init(self, *arguments, **options):
        init(self, *arguments, **options)
        refs.append(weakref.ref(self))
        refs.extend(weakref.ref(x) for x in (self.keys, self.values, self.starts))

    def noted_begin(cls, *arguments):
        request = begin(cls, *arguments)
        proposer = request.proposer
        parts = [getattr(proposer, name) for name in ("first", "second") if hasattr(proposer, name)]
        refs.extend(weakref.ref(x) for x in (request, proposer, *parts) if x is not None)
        return request

    with monkeypatch.context() as patch:
        patch.setattr(KVCache, "__init__", noted_init)
        patch.setattr(decoding.Request, "begin", classmethod(noted_begin))
        yield refs


def alive(refs):
    return [type(ref()).__qualname__ for ref in refs if ref() is not None]


@pytest.mark.parametrize(("name", "width"), [*((name, None) for name in NAMES), ("none", 16), ("draft chain", 16), ("eagle-2 tree", 16)])
def test_what_a_generation_held_dies_with_it(target, name, width, monkeypatch):
    """At once, and not when the collector next comes round: a cache of gigabytes cannot wait for that."""
    drafter, options = drafter_of(name, target, monkeypatch), {"width": width}
    gc.collect()
    gc.disable()
    try:
        with watched(monkeypatch) as refs:
            run = generate(target, PROMPT, drafter, Sampling(), 8, **options)
            assert len(refs) >= 5, "nothing was watched: this test shows nothing"
            assert not alive(refs), "a finished generation holds these; its result must not refer to them"
            steps = stream(target, PROMPT, drafter, Sampling(), 30, **options)
            next(steps)
            assert alive(refs)
            steps.close()
            assert not alive(refs), "a stream that was closed half way holds these"
            break_off(stream(target, PROMPT, drafter, Sampling(), 30, **options))
            assert not alive(refs), "a stream that was dropped half way holds these"
            stream(target, PROMPT, drafter, Sampling(), 30, **options)
            assert not alive(refs), "a stream that was never begun holds these"
            with broken_rounds(target, monkeypatch):
                try:
                    generate(target, PROMPT, drafter, Sampling(), 30, **options)
                except Broken:
                    assert alive(refs), "the traceback holds the round"
            assert not alive(refs), "an exception that is over holds these"
        assert run.tokens
    finally:
        gc.enable()


# What the cache's operations allocate.


class Allocations(TorchDispatchMode):
    """Bytes of every tensor that comes out of an operation with a storage that did not go into it."""

    def __init__(self):
        super().__init__()
        self.bytes: list[int] = []

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        given = {x.untyped_storage().data_ptr() for x in tree_leaves((arguments, options)) if isinstance(x, torch.Tensor)}
        result = operation(*arguments, **(options or {}))
        made = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tree_leaves(result) if isinstance(x, torch.Tensor)}
        self.bytes += [size for address, size in made.items() if address not in given]
        return result


def filled(target, kind=KVCache, slots=64, batch=2, length=40):
    cache = kind(target.config, batch, slots, dtype=target.dtype)
    for layer in range(target.config.layers):
        KVCache.append(cache, layer, *torch.randn(2, batch, 2, length, 4, dtype=target.dtype))
    return cache


def allocated(call, *arguments):
    with Allocations() as seen:
        call(*arguments)
    return seen.bytes


def moved_bytes(cache, slots):
    """Of keys and values in so many slots of every row, layer and head."""
    return cache.bytes // cache.max_length * slots


def test_moving_slots_allocates_in_proportion_to_them(target):
    """The slots that move, once each for keys and values, and as many indices; whatever the length of the cache."""
    for slots in (64, 4096):
        cache = filled(target, slots=slots)
        for n in (1, 3, 8):
            sizes = allocated(cache.move, torch.arange(20, 20 + 2 * n, 2).expand(2, -1), torch.tensor([[20], [20]]))
            indices = 2 * n * 8
            assert sum(sizes) <= moved_bytes(cache, n) + 4 * indices, f"{sizes} for {n} of {slots} slots"
            assert max(sizes) >= moved_bytes(cache, n) // 2, "the dispatch mode saw nothing of the copy: it shows nothing"


def test_keeping_a_path_allocates_in_proportion_to_it(target):
    cache = filled(target, slots=4096)
    sizes = allocated(cache.keep, [20, 22, 25])
    assert sum(sizes) <= moved_bytes(cache, 3) + 512
    assert sum(allocated(cache.keep, [19, 20, 21])) <= 64, "what lies side by side already need not move"


@pytest.mark.parametrize("call", [
    lambda c: c.rollback(17), lambda c: c.rollback([3, 9]), lambda c: c.drop(0), lambda c: c.drop(1), lambda c: c.row(1),
    lambda c: c.read(0),
], ids=["rollback", "rollback by row", "drop the first", "drop the last", "row", "read"])  # fmt: skip
def test_the_other_operations_allocate_next_to_nothing(target, call):
    cache = filled(target, slots=4096)
    before = storage(cache)
    sizes = allocated(call, cache)
    assert sum(sizes) <= 64, f"{sizes}: numbers may be made, copies of slots may not"
    assert storage(cache) == before


def test_negative_control_a_cache_that_copies_itself_is_seen(target):
    cache = filled(target, Concatenating)
    sizes = allocated(cache.move, torch.tensor([[20, 22], [20, 22]]), torch.tensor([[20], [20]]))
    assert sum(sizes) > cache.bytes // 2


@pytest.mark.parametrize("name", NAMES)
def test_no_round_allocates_a_cache(target, name, monkeypatch):
    """Whole rounds, late in a text: no operation makes a tensor of the size of the cache's keys, nor of one layer's."""
    drafter = drafter_of(name, target, monkeypatch)
    request = decoding.Request.begin(target, list(PROMPT), 24, drafter, Sampling(), Uniforms(0))
    cache = target.new_cache(LONG)
    steps = rounds(target, cache, [request])
    next(steps)
    with Allocations() as seen:
        next(steps)
        next(steps)
    layer = cache.bytes // 2 // target.config.layers
    assert seen.bytes
    assert max(seen.bytes) < layer / 4, f"one operation made {max(seen.bytes)} bytes, and the keys of one layer have {layer}"
