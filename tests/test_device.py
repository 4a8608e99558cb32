"""What a GPU needs, shown without one: no copy to the host on the path, one synchronisation a round, a round that can be captured.

The meta device has shapes and no numbers: whatever asks it for a value fails. Tracing records what a CUDA graph would: the operations
on tensors, with every number that came from the host baked in.
"""

from copy import copy, deepcopy

import pytest
import torch
from drafters_under_test import DRAFTERS
from tiny import tiny_model
from torch.fx.experimental.proxy_tensor import make_fx

from specdec import decoding, distributions, judging, verification
from specdec.decoding import Request, generate, rounds
from specdec.distributions import Sampling
from specdec.drafters import checking
from specdec.judging import Decision, judge
from specdec.tree import TokenTree, full_tree
from specdec.uniforms import Uniforms

SAMPLINGS = {"T=0": Sampling(0), "T=0.7, top-p": Sampling(0.7, top_p=0.9)}
PROMPT, LONGEST = [1, 2, 3, 1, 2], 40


def half_accepted(verdict, tree):
    """Stands in for the one synchronisation: it knows shapes only, and decides that the first node is accepted where there is one."""
    B, N = tree.tokens.shape
    tokens = [1 + i % 3 for i in range(N)]
    one = Decision(path=[0][:N], accepted=tokens[:1], next_token=2, tokens=tokens, parents=list(range(-1, N - 1)))
    return [one] * B


def run_on_meta(name, sampling, batch, width, monkeypatch):
    monkeypatch.setattr(judging, "_to_host", half_accepted)
    monkeypatch.setattr(checking, "STRICT_ROUNDS", 0)  # of a drafter that is known
    target = tiny_model(1, 11, layers=3).to("meta")
    drafter = DRAFTERS[name](target)
    cache = target.new_cache(LONGEST + max(drafter.max_nodes, width or 0), batch)
    layers = getattr(drafter, "layers", ())
    texts = [PROMPT[:5], PROMPT[:2], PROMPT[:4]][:batch]
    requests = [Request(list(t), 15 + i, drafter.start(target, sampling, LONGEST), Uniforms(i), layers) for i, t in enumerate(texts)]
    return list(rounds(target, cache, requests, sampling, width=width))


@pytest.mark.parametrize(
    ("sampling", "batch", "width"),
    [("T=0", 1, None), ("T=0.7, top-p", 1, None), ("T=0.7, top-p", 3, None), ("T=0", 1, 32)],
    ids=["greedy", "drawn", "batch", "width"],
)
@pytest.mark.parametrize("name", DRAFTERS)
def test_nothing_asks_the_device_for_a_number(name, sampling, batch, width, monkeypatch):
    assert len(run_on_meta(name, SAMPLINGS[sampling], batch, width, monkeypatch)) > 4


@pytest.mark.parametrize("question", ["item", "tolist", "cpu", "bool"])
def test_negative_control_a_question_to_the_device_is_noticed(question, monkeypatch):
    def nosy(self, committed, limit, uniforms):
        token = torch.zeros(1, dtype=torch.long, device="meta")
        bool(token) if question == "bool" else getattr(token, question)()
        return TokenTree.chain(token.cpu().to("meta"))

    target = tiny_model(1, 11, layers=3).to("meta")
    drafter = DRAFTERS["draft chain"](target)
    monkeypatch.setattr(type(drafter.start(target, Sampling(), LONGEST)), "propose", nosy)
    with pytest.raises((RuntimeError, NotImplementedError)):
        run_on_meta("draft chain", Sampling(), 1, None, monkeypatch)


def test_one_synchronisation_a_round(monkeypatch):
    """The loop turns tensors into numbers in `_to_host` alone, once a round."""
    calls = []
    original = judging._to_host
    monkeypatch.setattr(judging, "on_host", lambda device: False)
    monkeypatch.setattr(judging, "_to_host", lambda *arguments: calls.append(1) or original(*arguments))
    target = tiny_model(1, 11, layers=3)
    run = generate(target, PROMPT, DRAFTERS["draft tree"](target), max_new_tokens=20)
    assert len(calls) == run.stats.forwards


@torch.inference_mode()
def replays(shape, sampling, width):
    """A round recorded once behind 5 tokens, and replayed behind other numbers of tokens with other inputs: pairs of what the replay
    gives and of what the same code gives afresh."""
    target, N = tiny_model(1, 11), len(shape)
    generator = torch.Generator().manual_seed(0)
    cache = target.new_cache(32)
    target(torch.randint(0, 11, (1, 9), generator=generator), cache)
    fixed_shape = TokenTree.stack([TokenTree([0] * N, shape)])  # which also notes whether it is a chain

    def device_round(cache, newest, tokens, u):
        tree = copy(fixed_shape)
        tree.tokens = tokens
        verdict, output = judge(target, cache, newest, tree, u, sampling, width=width)
        path = verdict.count if verdict.path is None else verdict.path
        return verdict.count, verdict.next_token, path, output.logits, cache.keys, cache.starts

    def numbers():
        newest, tokens = (torch.randint(0, 11, (1, n), generator=generator) for n in (1, N))
        return newest, tokens, torch.rand(1, N + 1, generator=generator, dtype=torch.float64)

    recorded_on = deepcopy(cache)
    recorded_on.rollback(5)
    graph = make_fx(lambda *inputs: device_round(recorded_on, *inputs))(*numbers())
    for length in (9, 7, 9):
        eager = deepcopy(cache)
        eager.rollback(length)
        recorded_on.keys.copy_(eager.keys)
        recorded_on.values.copy_(eager.values)
        recorded_on.starts.fill_(length)
        inputs = numbers()
        yield from zip(graph(*inputs), device_round(eager, *inputs), strict=True)


@pytest.mark.parametrize("shape", [full_tree([2, 2]), full_tree([1, 1, 1])], ids=["tree", "chain"])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_round_of_fixed_width_can_be_captured(shape, sampling, monkeypatch):
    for module in (distributions, verification):  # take the way of an accelerator, which nobody asks
        monkeypatch.setattr(module, "on_host", lambda device: False)
    assert all(torch.equal(replayed, afresh) for replayed, afresh in replays(shape, sampling, width=8))


def test_negative_control_a_round_without_a_width_has_the_length_baked_in():
    pairs = replays(full_tree([2, 2]), SAMPLINGS["T=0"], width=None)
    assert not all(replayed.shape == afresh.shape and torch.equal(replayed, afresh) for replayed, afresh in pairs)


@pytest.mark.cuda
@pytest.mark.parametrize("name", DRAFTERS)
def test_on_a_gpu_the_text_is_that_of_the_cpu(name):
    target = tiny_model(1, 11, layers=3)
    plain = generate(target, PROMPT, None, Sampling(0), 60).tokens
    on_gpu = deepcopy(target).to("cuda")
    assert generate(on_gpu, PROMPT, DRAFTERS[name](on_gpu), Sampling(0), 60).tokens == plain
    batch = generate(on_gpu, [PROMPT, PROMPT[:2]], DRAFTERS[name](on_gpu), Sampling(0), 60)
    assert batch[0].tokens == plain


@pytest.mark.cuda
@pytest.mark.parametrize("name", DRAFTERS)
def test_on_a_gpu_only_one_place_waits(name, monkeypatch):
    target = tiny_model(1, 11, layers=3).to("cuda")
    drafter, original = DRAFTERS[name](target), judging._to_host
    generate(target, PROMPT, drafter, Sampling(0.7), 10)  # the first kernels of a process may wait

    def allowed(*arguments):
        torch.cuda.set_sync_debug_mode("default")
        decided = original(*arguments)
        torch.cuda.set_sync_debug_mode("error")
        return decided

    monkeypatch.setattr(judging, "_to_host", allowed)
    steps = decoding.stream(target, PROMPT, drafter, Sampling(0.7), 30)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert sum(len(step.tokens) for step in steps) == 30
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
@torch.inference_mode()
def test_on_a_gpu_a_round_is_captured_and_replayed():
    target, shape, width = tiny_model(1, 11).to("cuda"), full_tree([2, 2]), 8
    cache = target.new_cache(32)
    target(torch.randint(0, 11, (1, 9), device="cuda"), cache)
    tree = TokenTree.stack([TokenTree(torch.zeros(len(shape), dtype=torch.long, device="cuda"), shape)])
    newest, u = torch.ones(1, 1, dtype=torch.long, device="cuda"), torch.rand(1, len(shape) + 1, dtype=torch.float64, device="cuda")
    sampling, eager = Sampling(0.7), deepcopy(cache)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # kernels are chosen before the capture
        judge(target, deepcopy(cache), newest, deepcopy(tree), u, sampling, width=width)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        verdict, output = judge(target, cache, newest, tree, u, sampling, width=width)
    for _ in range(3):
        newest.copy_(torch.randint(0, 11, (1, 1), device="cuda"))
        tree.tokens.copy_(torch.randint(0, 11, tree.tokens.shape, device="cuda"))
        u.copy_(torch.rand_like(u))
        cache.starts.fill_(9)
        graph.replay()
        eager.rollback(9)
        other = deepcopy(tree)
        afresh, scores = judge(target, eager, newest, other, u, sampling, width=width)
        assert torch.equal(output.logits, scores.logits)
        assert torch.equal(verdict.path, afresh.path)
        assert torch.equal(verdict.next_token, afresh.next_token)
