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


def slow_candidates(committed, ngram, k, candidates, shortest=1):
    """From the definition: every copy behind the latest occurrences of the longest suffix, without repetitions, as a set of paths
    and the order in which the root's children are tried."""
    for n in range(min(ngram, len(committed) - 1), shortest - 1, -1):
        starts = [s for s in range(len(committed) - n - 1, -1, -1) if committed[s : s + n] == committed[-n:]][:candidates]
        copies = []
        for start in starts:
            period = committed[start + n :]
            copies.append((period * (k + 1))[:k])
        if starts:
            paths = {tuple(copy[:depth]) for copy in copies for depth in range(1, k + 1)}
            return paths, list(dict.fromkeys(copy[0] for copy in copies if copy))
    return set(), []


@pytest.mark.parametrize("limit", [100, 2])
@pytest.mark.parametrize("candidates", [1, 2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_prompt_lookup_merges_the_latest_candidates_into_a_trie(seed, candidates, limit):
    text = torch.randint(0, 4, (60,), generator=torch.Generator().manual_seed(seed)).tolist()
    drafter = PromptLookup(ngram=3, k=5, candidates=candidates)
    proposer, position, branched = drafter.start(tiny_model(0), Sampling(), 100), 1, False
    while position < len(text):
        tree = proposer.propose(text[:position], limit, Uniforms(0))
        paths = [tuple(tree.tokens[tree.path_to(node)].tolist()) for node in range(len(tree))]
        expected, first = slow_candidates(text[:position], 3, min(5, limit), candidates)
        assert len(set(paths)) == len(paths), "a path stands in the trie twice"
        assert set(paths) == expected
        assert [tree.tokens[child].item() for child in tree.children(-1)] == first
        assert len(tree) <= drafter.max_nodes == 5 * candidates
        assert tree.q is None
        branched |= not tree.is_chain
        position += 1 + position % 4
    assert branched == (candidates > 1)


def test_prompt_lookup_reaches_max_nodes():
    proposer = PromptLookup(ngram=1, k=2, candidates=3).start(tiny_model(0), Sampling(), 100)
    assert len(proposer.propose([0, 1, 2, 0, 3, 4, 0, 5, 6, 0], 100, Uniforms(0))) == 6


def test_prompt_lookup_with_candidates_on_a_repeated_token():
    proposer = PromptLookup(ngram=2, k=4, candidates=3).start(tiny_model(0), Sampling(), 100)
    tree = proposer.propose([7, 7, 7, 7, 7], 100, Uniforms(0))
    assert tree.tokens.tolist() == [7, 7, 7, 7]
    assert tree.is_chain


class Counted(list):
    """A text that counts how many of its tokens are read."""

    reads = 0

    def __getitem__(self, where):
        found = super().__getitem__(where)
        Counted.reads += len(found) if isinstance(where, slice) else 1
        return found

    def __iter__(self):
        for i in range(len(self)):
            yield self[i]


@pytest.mark.parametrize("candidates", [1, 3])
def test_a_round_of_prompt_lookup_reads_the_new_tokens_and_the_draft_only(candidates):
    generator = torch.Generator().manual_seed(0)
    for length in (200, 2000):
        Counted.reads = 0
        text = Counted(torch.randint(0, 4, (length,), generator=generator).tolist())
        proposer = PromptLookup(ngram=3, k=8, candidates=candidates).start(tiny_model(0), Sampling(), 3000)
        proposer.propose(text, 100, Uniforms(0))
        assert Counted.reads >= 3 * (length - 3), "the count sees the first round, which reads everything"
        text += [1, 2]
        Counted.reads = 0
        assert len(proposer.propose(text, 100, Uniforms(0)))
        # The n-grams that end in the new tokens, the suffixes, and the copies.
        assert Counted.reads <= 2 * (1 + 2 + 3) + (1 + 2 + 3) + 8 * candidates


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


@pytest.mark.parametrize(("options", "message"), [
    ({"candidates": 0}, "candidates must be a whole number >= 1, got 0"), ({"k": -1}, "k must be a whole number >= 0, got -1"),
    ({"shortest": 4}, "shortest 4"),
])  # fmt: skip
def test_the_numbers_of_prompt_lookup_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        PromptLookup(**options)
