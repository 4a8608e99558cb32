"""B > 1: every row of a batch is the text that it would be alone, however its neighbours fare."""

import pytest
import torch
from drafters_under_test import DRAFTERS
from tiny import tiny_model

from specdec.decoding import Request, generate, rounds, stream
from specdec.distributions import Sampling
from specdec.uniforms import Uniforms

PROMPTS = [[1, 2, 3, 1, 2], [4], [1, 2, 3, 1, 2], [5, 6, 7, 8, 5, 6, 7], [4]]
REQUESTS = [0, 0, 1, 0, 1]  # the k-th repetition of a prompt is request k
SAMPLINGS = {"T=0": Sampling(0), "T=1": Sampling(), "T=0.7, top-p": Sampling(0.7, top_p=0.9)}


@pytest.fixture(scope="module")
def target():
    return tiny_model(1, vocab_size=11, layers=3, scale=1.5)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("name", ["none", *DRAFTERS])
def test_every_row_is_what_it_is_alone(target, name, sampling):
    drafter = DRAFTERS[name](target) if name != "none" else None
    options = {"max_new_tokens": 30, "stop_tokens": [9], "seed": 4}
    together = generate(target, PROMPTS, drafter, sampling, **options)
    for row, (prompt, request) in enumerate(zip(PROMPTS, REQUESTS, strict=True)):
        alone = generate(target, prompt, drafter, sampling, request=request, **options)
        assert together[row].tokens == alone.tokens, f"row {row}"
        counted = [(r.tokens, r.accepted, r.drafted, r.last) for r in alone.rounds]
        assert [(r.tokens, r.accepted, r.drafted, r.last) for r in together[row].rounds] == counted
    if not sampling.greedy:
        assert together[0].tokens != together[2].tokens, "two copies of a prompt must be two draws"
    assert len({len(run.tokens) for run in together}) > 1 or not sampling.greedy, "no row ended early: the test tests too little"


def test_a_row_does_not_depend_on_its_neighbours(target):
    drafter = DRAFTERS["draft chain"](target)
    first = generate(target, PROMPTS, drafter, max_new_tokens=20)[3].tokens
    for others in ([], [[9, 9]], [[2], [3, 3], [1]]):
        assert generate(target, [*others, PROMPTS[3]], drafter, max_new_tokens=20)[-1].tokens == first


@pytest.mark.parametrize("name", ["none", "draft chain", "draft tree", "prompt lookup tree"])
def test_after_every_round_each_row_equals_a_fresh_prefill(target, name):
    """Slots behind each row's length hold a huge number. Not NaN: a ragged batch masks what it must not see, and 0 · NaN is NaN."""
    texts, longest = [list(prompt) for prompt in PROMPTS], 60
    drafter = DRAFTERS[name](target) if name != "none" else None
    requests = [
        Request(text, longest, drafter.start(target, Sampling(), longest) if drafter else None, Uniforms(3, row))
        for row, text in enumerate(texts)
    ]
    cache = target.new_cache(longest + 16, len(texts))
    for number, _ in enumerate(rounds(target, cache, requests)):
        if number == 5:
            break
        for row, text in enumerate(texts):
            own = cache.row(row)
            length = own.length
            assert length == len(text) - 1 == int(cache.starts[row])
            own.keys[:, :, :, length:], own.values[:, :, :, length:] = 1e4, -1e4
            after = target(torch.tensor([text[length:]]), own, rows=1).logits
            own.rollback(length)
            torch.testing.assert_close(after, target(torch.tensor([text]), target.new_cache(), rows=1).logits, rtol=0, atol=1e-12)


def test_rows_end_at_different_times_and_the_batch_shrinks(target):
    steps = list(stream(target, PROMPTS, DRAFTERS["itself"](target), Sampling(0), 12, stop_tokens=[9]))
    alive = [[round is not None for round in step] for step in steps]
    for before, after in zip(alive, alive[1:]):
        assert all(b or not a for b, a in zip(before, after, strict=True)), "a row that had ended went on"
    assert not all(alive[-1])


def test_prompts_of_every_form(target):
    expected = [generate(target, prompt, None, Sampling(0), 5).tokens for prompt in ([1, 2], [3, 4])]
    for prompt in ([[1, 2], [3, 4]], ((1, 2), (3, 4)), torch.tensor([[1, 2], [3, 4]]), [torch.tensor([1, 2]), [3, 4]]):
        assert [run.tokens for run in generate(target, prompt, None, Sampling(0), 5)] == expected
    assert len(generate(target, [[1, 2]], None, Sampling(0), 5)) == 1, "a batch of one is a batch"


def test_errors_name_the_row_before_any_work(target, monkeypatch):
    monkeypatch.setattr(type(target), "forward", lambda *_, **__: pytest.fail("the target ran before the error"))
    with pytest.raises(ValueError, match=r"\[0, 11\)"):
        stream(target, [[1], [11]])
    with pytest.raises(ValueError, match="make 257"):
        stream(target, [[1], [1] * 250], max_new_tokens=7)
