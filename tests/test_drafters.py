import pytest
import torch
from tiny import tiny_model

from specdec.distributions import Sampling
from specdec.drafters import DraftModel, PromptLookup
from specdec.uniforms import Purpose, Uniforms


def slow_lookup(committed, ngram, k, shortest=1):
    """From the definition: the longest suffix, its latest earlier occurrence, copied on into the copy itself."""
    for n in range(min(ngram, len(committed) - 1), shortest - 1, -1):
        for start in range(len(committed) - n - 1, -1, -1):
            if committed[start : start + n] == committed[-n:]:
                text = list(committed)
                for i in range(k):
                    text.append(text[start + n + i])
                return text[len(committed) :]
    return []


@pytest.mark.parametrize("seed", range(20))
def test_prompt_lookup_equals_its_definition(seed):
    text = torch.randint(0, 4, (60,), generator=torch.Generator().manual_seed(seed)).tolist()
    proposer = PromptLookup(ngram=3, k=5).start(tiny_model(0), Sampling(), 100)
    position = 1
    while position < len(text):  # the text grows by one to four tokens a round, as it does in the loop
        found = proposer.propose(text[:position], limit=100, uniforms=Uniforms(0))
        assert found.q is None
        assert found.tokens.tolist() == slow_lookup(text[:position], 3, 5)
        position += 1 + position % 4


def test_prompt_lookup_on_a_repeated_token():
    proposer = PromptLookup(ngram=3, k=4).start(tiny_model(0), Sampling(), 100)
    assert proposer.propose([7, 7], 100, Uniforms(0)).tokens.tolist() == [7, 7, 7, 7]


def test_prompt_lookup_keeps_to_the_limit_and_finds_nothing_where_nothing_is():
    proposer = PromptLookup(ngram=3, k=8).start(tiny_model(0), Sampling(), 100)
    assert len(proposer.propose([1], 100, Uniforms(0))) == 0
    assert len(proposer.propose([1, 2, 3], 100, Uniforms(0))) == 0
    assert proposer.propose([1, 2, 3, 1], 2, Uniforms(0)).tokens.tolist() == [2, 3]
    assert len(PromptLookup(ngram=3, k=8, shortest=2).start(tiny_model(0), Sampling(), 9).propose([1, 2, 3, 1], 8, Uniforms(0))) == 0


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0), Sampling(0.5, top_k=3)])
def test_draft_model_declares_the_q_that_it_drew_from(sampling):
    model = tiny_model(2, vocab_size=11)
    committed, uniforms = [1, 2, 3], Uniforms(4)
    tree = DraftModel(model, 4).start(tiny_model(1, vocab_size=11), sampling, 50).propose(committed, 10, uniforms)
    u = uniforms.draw(Purpose.DRAFT, 3, 4)
    for i, token in enumerate(tree.tokens.tolist()):
        context = torch.tensor([committed + tree.tokens[:i].tolist()])
        q = sampling.probabilities(model(context, model.new_cache(), rows=1).logits[0, -1])
        if sampling.greedy:  # nothing is drawn
            assert tree.q is None
            assert token == q.argmax()
            continue
        torch.testing.assert_close(tree.q[i], q, rtol=0, atol=1e-12)
        cdf = q.cumsum(0)
        assert cdf[token] - q[token] <= u[i] < cdf[token] + 1e-12


def test_one_drafter_serves_many_requests():
    """State lives in what start() returns: two requests that take turns do not disturb each other."""
    target, drafter = tiny_model(1, vocab_size=11), DraftModel(tiny_model(2, vocab_size=11), 3)
    texts = [[1, 2, 3], [4, 5]]
    alone = [drafter.start(target, Sampling(), 50).propose(text, 10, Uniforms(0)).tokens.tolist() for text in texts]
    proposers = [drafter.start(target, Sampling(), 50) for _ in texts]
    assert [p.propose(text, 10, Uniforms(0)).tokens.tolist() for p, text in zip(proposers, texts, strict=True)] == alone
