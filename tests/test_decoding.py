"""The loop: greedy identity, the cache after every round, stop tokens × budget × K, seeds, and errors before any work."""

from dataclasses import dataclass

import pytest
import torch
from drafters_under_test import DRAFTERS
from tiny import tiny_model

from specdec import decoding
from specdec.decoding import generate, stream
from specdec.distributions import Sampling, inverse_cdf
from specdec.drafters import DraftModel, PromptLookup
from specdec.statistics import goodness_of_fit
from specdec.tree import TokenTree, full_tree
from specdec.uniforms import Purpose, Uniforms

GREEDY = Sampling(0)
PROMPT = [1, 2, 3, 1, 2]


@pytest.fixture(scope="module")
def target():
    return tiny_model(1, vocab_size=11, scale=1.5)


@pytest.fixture(scope="module")
def draft():
    return tiny_model(2, vocab_size=11, layers=1, scale=1.5)


@dataclass(frozen=True)
class Oracle:
    """A drafter that proposes the text it was given, wrong from `right` tokens on: it forces any accept length."""

    text: list[int]
    k: int
    right: int
    max_nodes: int = 16

    def start(self, target, sampling, max_length):
        return self

    def propose(self, committed, limit, uniforms):
        n = len(committed)
        tokens = self.text[n : n + min(self.k, limit)]
        return TokenTree.chain(torch.tensor([t if i < self.right else (t + 1) % 11 for i, t in enumerate(tokens)], dtype=torch.long))

    def observe(self, outcome):
        pass


@dataclass(frozen=True)
class Bushy:
    """A drafter of branching trees: two children a node, three levels, out of a draft model by fresh prefills. Drawn without
    replacement, or the two most probable tokens as point masses."""

    model: object
    drawn: bool
    max_nodes: int = 14

    def start(self, target, sampling, max_length):
        return BushyProposer(self, sampling)


class BushyProposer:
    def __init__(self, drafter, sampling):
        self.drafter, self.sampling = drafter, sampling

    def propose(self, committed, limit, uniforms):
        model = self.drafter.model
        u, levels = iter(uniforms.draw(Purpose.DRAFT, len(committed), 14)), min(3, limit)
        tokens, parents, rows, frontier = [], [], [], [(-1, list(committed))]
        for level in range(levels + 1):
            following = []
            for node, text in frontier:
                q = self.sampling.probabilities(model(torch.tensor([text]), model.new_cache(), rows=1).logits[0, -1])
                rows.append((node, q))
                if level == levels:
                    continue
                order = q.argsort(descending=True, stable=True).tolist()
                rest = q.clone()
                for _ in range(2):
                    if self.drafter.drawn and rest.sum() > 0:
                        x = int(inverse_cdf(rest, next(u)))
                        rest[x] = 0
                    else:
                        x = next(t for t in order if t not in [tokens[i] for i, p in enumerate(parents) if p == node])
                    tokens.append(x)
                    parents.append(node)
                    following.append((len(tokens) - 1, [*text, x]))
            frontier = following
        q = torch.stack([row for _, row in sorted(rows, key=lambda pair: pair[0])]) if self.drafter.drawn else None
        return TokenTree(torch.tensor(tokens), torch.tensor(parents), q)

    def observe(self, outcome):
        assert len(outcome.logits) in (0, len(outcome.tree) + 1)


def drafters(target, draft):
    return {
        "draft-model": DraftModel(draft, 4), "self": DraftModel(target, 3), "truncated": DraftModel(target.truncated(1), 5),
        "k=0": DraftModel(draft, 0), "prompt-lookup": PromptLookup(3, 6), "lookup-1": PromptLookup(1, 1),
        "tree, drawn": Bushy(draft, drawn=True), "tree, top-2": Bushy(draft, drawn=False),
        "draft tree": DraftModel(draft, tree=full_tree([2, 2, 1])), "sparse tree": DraftModel(draft, tree=[-1, -1, -1, 0, 0, 1, 3]),
        "independent": DraftModel(draft, tree=full_tree([3, 2]), siblings="iid"),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["self", "k=0", "lookup-1", "tree, top-2", "sparse tree", "independent", *DRAFTERS])
def test_greedy_text_is_that_of_plain_decoding(target, draft, name):
    plain = generate(target, PROMPT, None, GREEDY, max_new_tokens=120)
    drafter = DRAFTERS[name](target) if name in DRAFTERS else drafters(target, draft)[name]
    drafted = generate(target, PROMPT, drafter, GREEDY, max_new_tokens=120)
    assert drafted.tokens == plain.tokens
    assert len(plain.tokens) == plain.stats.forwards == 120
    if name == "self":  # a draft that is the target is always right
        assert drafted.stats.acceptance_rate == 1
        assert drafted.stats.forwards == 30


def proposers_in(proposer):
    """The proposer, and those that it combines."""
    return [proposer, *(one for part in ("first", "second") if hasattr(proposer, part) for one in proposers_in(getattr(proposer, part)))]


@pytest.mark.parametrize("name", ["none", *DRAFTERS])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(0.7, top_p=0.9)], ids=["T=0", "T=1", "T=0.7, top-p"])
def test_after_every_round_the_cache_equals_a_fresh_prefill(name, sampling):
    """Dropped slots poisoned with NaN, in the caches of target, draft model and head. It catches a wrong rollback, a stale slot, a
    wrong position. The poisoned generation goes on, and gives the text that it gives without poison."""
    target = tiny_model(1, 11, layers=3, scale=1.5)
    drafter, longest = DRAFTERS[name](target) if name != "none" else None, 50
    expected = generate(target, PROMPT, drafter, sampling, longest - len(PROMPT), seed=3).tokens
    committed, proposer = list(PROMPT), drafter.start(target, sampling, longest) if drafter else None
    cache = target.new_cache(longest + 16)
    request = decoding.Request(committed, longest, proposer, Uniforms(3), getattr(drafter, "layers", ()))
    for _ in decoding.rounds(target, cache, [request], sampling):
        assert cache.length == len(committed) - 1, "everything but the newest token lies in the target's cache"
        caches = [(target, cache)]
        for one in proposers_in(proposer):
            if hasattr(one, "cache"):
                caches.append((getattr(one, "model", None), one.cache))
        for model, poisoned in caches:
            length = poisoned.length
            poisoned.keys[:, :, :, length:], poisoned.values[:, :, :, length:] = float("nan"), float("nan")
            if model is None or length == poisoned.max_length:  # a head's cache: the text tells
                continue
            after = model(torch.tensor([committed[length:]]), poisoned, rows=1).logits
            poisoned.rollback(length)
            fresh = model(torch.tensor([committed]), model.new_cache(), rows=1).logits
            torch.testing.assert_close(after, fresh, rtol=0, atol=1e-12)
    assert committed[len(PROMPT) :] == expected


@pytest.mark.parametrize("name", ["draft-model", "tree, top-2"])
def test_observe_shows_what_the_target_computed(target, draft, name):
    """The features of the prompt, then of the root and the accepted path, as in a fresh prefill; logits at every node of the tree."""
    committed, proposer = list(PROMPT), drafters(target, draft)[name].start(target, GREEDY, 40)
    seen, original = [], proposer.observe

    def observe(outcome):
        seen.append((list(committed), outcome))
        original(outcome)

    proposer.observe = observe
    request = decoding.Request(committed, 40, proposer, Uniforms(0), layers=(0, 1))
    for _ in decoding.rounds(target, target.new_cache(60), [request], GREEDY):
        pass
    assert len(seen[0][1].tree) == len(seen[0][1].logits) == 0
    assert len(seen[0][1].hidden) == len(PROMPT) - 1
    for before, outcome in seen[1:]:
        tree, tokens = outcome.tree, [outcome.tree.tokens[node].item() for node in outcome.accepted]
        fresh = target(torch.tensor([before + tokens]), target.new_cache(), layers=(0, 1))
        rows = slice(-len(tokens) - 1, None)
        torch.testing.assert_close(outcome.hidden, fresh.hidden[0, rows], rtol=0, atol=1e-12)
        torch.testing.assert_close(outcome.layers, fresh.layers[0, rows], rtol=0, atol=1e-12)
        assert len(outcome.logits) == len(tree) + 1
        for node in range(-1, len(tree)):
            path = [tree.tokens[i].item() for i in tree.path_to(node)]
            alone = target(torch.tensor([before + path]), target.new_cache(), rows=1).logits[0, 0]
            torch.testing.assert_close(outcome.logits[node + 1], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_every_accept_length(target, k):
    text = PROMPT + generate(target, PROMPT, None, GREEDY, max_new_tokens=40).tokens
    for right in range(k + 1):
        run = generate(target, PROMPT, Oracle(text, k, right), GREEDY, max_new_tokens=40)
        assert PROMPT + run.tokens == text
        full = [round for round in run.rounds if round.drafted == k]
        assert full
        assert all(round.accepted == right for round in full)
        assert all(round.last == ("bonus" if right == k else "recovered") for round in full)
        assert all(round.judged == min(right + 1, k) for round in full), "what stands after a rejection was never judged"
        assert run.stats.judged == sum(round.judged for round in run.rounds)
        assert run.stats.alpha == run.stats.accepted / run.stats.judged


@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 9])
def test_stop_token_times_budget_times_k(target, k, budget):
    text = generate(target, PROMPT, None, GREEDY, max_new_tokens=12).tokens
    for stop in set(text):
        expected = text[: min(budget, text.index(stop) + 1)]
        run = generate(target, PROMPT, Oracle(PROMPT + text, k, right=8), GREEDY, max_new_tokens=budget, stop_tokens=[stop])
        assert run.tokens == expected
        assert run.stats.emitted == sum(len(round.tokens) for round in run.rounds) == len(expected)
        assert run.stats.accepted <= run.stats.emitted
        assert all(round.accepted <= round.judged <= round.drafted for round in run.rounds)
        for round in run.rounds:
            assert round.accepted + (round.last != "accepted") == len(round.tokens)


def test_seeds(target, draft):
    for drafter in (None, DraftModel(draft, 3)):
        runs = [generate(target, PROMPT, drafter, max_new_tokens=40, seed=seed).tokens for seed in (0, 0, 1)]
        assert runs[0] == runs[1] != runs[2]


def test_a_round_that_drafts_nothing_moves_no_draw(target, draft):
    """K = 0, and a prompt lookup that finds nothing, equal plain decoding at any temperature."""
    plain = generate(target, PROMPT, None, max_new_tokens=40, seed=5).tokens
    assert generate(target, PROMPT, DraftModel(draft, 0), max_new_tokens=40, seed=5).tokens == plain
    assert generate(target, PROMPT, PromptLookup(3, 0), max_new_tokens=40, seed=5).tokens == plain
    assert generate(target, PROMPT, Oracle([], 4, 0), max_new_tokens=40, seed=5).tokens == plain


def test_uniforms_depend_on_their_key_alone():
    first, second = Uniforms(1, request=2), Uniforms(1, request=2)
    second.draw(Purpose.DRAFT, 9, 100)
    assert torch.equal(first.draw(Purpose.VERIFY, 7, 5), second.draw(Purpose.VERIFY, 7, 5))
    assert torch.equal(first.draw(Purpose.VERIFY, 7, 5)[:3], first.draw(Purpose.VERIFY, 7, 3))
    others = [Uniforms(1, 3), Uniforms(2, 2)]
    draws = [first.draw(p, n, 4) for p in Purpose for n in (7, 8)] + [u.draw(Purpose.VERIFY, 7, 4) for u in others]
    assert len({tuple(d.tolist()) for d in draws}) == len(draws)
    many = torch.cat([Uniforms(seed).draw(Purpose.NEXT, 0, 100) for seed in range(200)])
    assert goodness_of_fit(torch.histc(many, 20, 0, 1).tolist(), [1 / 20] * 20)


@pytest.mark.parametrize("drafter", [DraftModel(tiny_model(2, 11, 1, 1.5), 1), Bushy(tiny_model(2, 11, 1, 1.5), drawn=True)])
def test_sampled_pairs_fit_the_target(target, drafter):
    """The statistical twin of test_exactness.py: pairs of first tokens over independent seeds, exact probabilities."""
    with torch.inference_mode():
        first = Sampling().probabilities(target(torch.tensor([PROMPT]), target.new_cache(), rows=1).logits[0, -1])
        joint = torch.stack([
            first[x] * Sampling().probabilities(target(torch.tensor([[*PROMPT, x]]), target.new_cache(), rows=1).logits[0, -1])
            for x in range(11)
        ])  # fmt: skip
    counts = torch.zeros(11, 11)
    for seed in range(1000):
        x, y = generate(target, PROMPT, drafter, max_new_tokens=2, seed=seed).tokens
        counts[x, y] += 1
    assert goodness_of_fit(counts.flatten().tolist(), joint.flatten().tolist()), str(goodness_of_fit(counts.flatten(), joint.flatten()))


def test_the_budget_may_fill_the_context_exactly(target):
    prompt = [1] * 250
    assert len(generate(target, prompt, DraftModel(target, 4), GREEDY, max_new_tokens=6).tokens) == 6
    with pytest.raises(ValueError, match="make 257; the model's context is 256"):
        generate(target, prompt, None, GREEDY, max_new_tokens=7)


def test_prompts_of_every_form(target):
    expected = generate(target, PROMPT, None, GREEDY, max_new_tokens=5).tokens
    assert generate(target, torch.tensor(PROMPT), None, GREEDY, max_new_tokens=5).tokens == expected
    assert generate(target, tuple(PROMPT), None, GREEDY, max_new_tokens=5).tokens == expected
    prompt = list(PROMPT)
    generate(target, prompt, None, GREEDY, max_new_tokens=5)
    assert prompt == PROMPT, "the caller's list must not grow"


@pytest.mark.parametrize(("prompt", "options", "message"), [
    ([], {}, "at least one token"), ("text", {}, "tokenizer"), ([11], {}, r"\[0, 11\)"), ([-1], {}, r"\[0, 11\)"),
    ([0.5], {}, "whole numbers"),
    ([[[1]]], {}, "one number a token, got shape"),
    ([[1], []], {}, "at least one token"), ([1], {"max_new_tokens": 0}, "max_new_tokens must be a whole number >= 1"),
    ([1], {"drafter": DraftModel(tiny_model(0, vocab_size=7), 2)}, "vocabulary of 7 tokens and the target of 11"),
])  # fmt: skip
def test_errors_come_before_any_work(target, prompt, options, message, monkeypatch):
    monkeypatch.setattr(type(target), "forward", lambda *_, **__: pytest.fail("the target ran before the error"))
    with pytest.raises(ValueError, match=message):
        stream(target, prompt, **options)


def test_bad_drafters_are_named(draft):
    with pytest.raises(ValueError, match="k must be a whole number >= 0, got -1"):
        DraftModel(draft, -1)
    with pytest.raises(ValueError, match="k must be a whole number >= 0, got -1"):
        PromptLookup(3, -1)
    with pytest.raises(ValueError, match="ngram must be a whole number >= 1, got 0"):
        PromptLookup(0)
