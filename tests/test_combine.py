"""Combine: the tree against a trie of dicts, what each drafter observes against fresh prefills, the text against plain decoding."""

from dataclasses import dataclass
from functools import cache

import pytest
import torch
from tiny import law_of_round, probability_table, tiny_model

from specdec import decoding
from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import Combine, DraftModel, Lookahead, PromptLookup, combine, lookahead, merging
from specdec.drafters.base import Outcome
from specdec.drafters.combine import join
from specdec.law import law_distance
from specdec.statistics import goodness_of_fit
from specdec.tree import TokenTree, full_tree
from specdec.uniforms import Purpose, Uniforms

GREEDY = Sampling(0)
PROMPT = [1, 2, 3, 1, 2]
FORMS = {"left out": True, "padding": False}  # what becomes of nodes that are none: as on a CPU, and as on an accelerator


@pytest.fixture(scope="module")
def target():
    return tiny_model(1, vocab_size=11, layers=3, scale=1.5)


@cache
def plain_text(target, prompt):
    return generate(target, list(prompt), None, GREEDY, max_new_tokens=100).tokens


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def form(request, monkeypatch):
    for module in (merging, lookahead, combine):
        monkeypatch.setattr(module, "on_host", lambda device: request.param)
    return request.param


@dataclass(frozen=True)
class Fixed:
    """A drafter that proposes one tree, whatever the text."""

    tokens: tuple
    parents: tuple
    layers: tuple = ()

    @property
    def max_nodes(self):
        return len(self.tokens)

    def start(self, target, sampling, max_length):
        return self

    def propose(self, committed, limit, uniforms):
        return TokenTree(torch.tensor(self.tokens, dtype=torch.long), torch.tensor(self.parents, dtype=torch.long))

    def observe(self, outcome):
        pass


def pairs(target):
    draft = tiny_model(2, 11, 1, 1.5)
    chain, lookup = DraftModel(draft, 4), PromptLookup(3, 5, candidates=2)
    bushy = DraftModel(draft, tree=full_tree([2, 2])), DraftModel(target.truncated(2), tree=full_tree([3, 1, 1]))
    return {
        "chain + lookup": Combine(chain, lookup), "lookup + chain": Combine(lookup, chain), "two trees": Combine(*bushy),
        "lookahead + lookup": Combine(Lookahead(4, 3, 3), lookup), "two lookaheads": Combine(Lookahead(2, 4, 2), Lookahead(4, 2, 0)),
        "nested left": Combine(Combine(chain, Lookahead(3, 3, 2)), lookup),
        "nested right": Combine(bushy[0], Combine(lookup, Combine(bushy[1], Lookahead(3, 3, 2)))),
    }  # fmt: skip


def iid_pair(target):
    """Independent draws: the trees hold siblings with the same token."""
    shape = full_tree([3, 2])
    return Combine(
        DraftModel(tiny_model(2, 11, 1, 1.5), tree=shape, siblings="iid"), DraftModel(target.truncated(1), tree=shape, siblings="iid")
    )


def paths_of(tree: TokenTree) -> list[tuple[int, ...]]:
    """The tokens on the way to each node, node by node."""
    tokens = tree.tokens.tolist()
    return [tuple(tokens[i] for i in tree.path_to(node)) for node, parent in enumerate(tree.parents.tolist()) if parent >= -1]


def trie_of(*trees: TokenTree) -> dict:
    """Nested dicts, filled tree by tree; dicts keep their order."""
    trie: dict = {}
    for tree in trees:
        for path in paths_of(tree):
            below = trie
            for token in path:
                below = below.setdefault(token, {})
    return trie


def in_order(trie: dict) -> list:
    """A trie with the order of siblings, which dicts do not compare."""
    return [(token, in_order(below)) for token, below in trie.items()]


def random_tree(generator, nodes: int, vocabulary: int, repeats: bool = False) -> TokenTree:
    """Siblings of the same token only if it `repeats` them; a node here and there is none."""
    tokens, parents, seen = [], [], set()
    for node in range(nodes):
        above = int(torch.randint(-1, node, (1,), generator=generator)) if node else -1
        token = int(torch.randint(vocabulary, (1,), generator=generator))
        dead = (above >= 0 and parents[above] < -1) or (not repeats and (above, token) in seen) or node % 7 == 6
        tokens.append(token)
        parents.append(-2 - node % 3 if dead else above)
        seen.add((above, token))
    return TokenTree(torch.tensor(tokens, dtype=torch.long), torch.tensor(parents, dtype=torch.long))


@pytest.mark.parametrize("seed", range(30))
def test_merging_equals_a_trie_of_dicts(form, seed):
    generator = torch.Generator().manual_seed(seed)
    first, second = (random_tree(generator, n, 3) for n in (seed % 11, 10 - seed % 9))
    joint = join(first, second)
    assert in_order(trie_of(joint.tree)) == in_order(trie_of(first, second))
    paths = paths_of(joint.tree)
    assert len(set(paths)) == len(paths), "a path stands in the tree twice"
    assert joint.tree.q is None
    if not form:
        assert len(joint.tree) == len(first) + len(second)


@pytest.mark.parametrize("repeats", [False, True], ids=["distinct", "repeats"])
@pytest.mark.parametrize("seed", range(15))
def test_both_trees_can_be_read_out_of_the_joint_one(form, seed, repeats):
    """Tokens, parents, dead nodes; the accepted path of each; the row of every node: for any path that may be accepted."""
    generator = torch.Generator().manual_seed(seed)
    trees = [random_tree(generator, n, 3 - repeats, repeats) for n in (seed % 11, 10 - seed % 9)]
    joint = join(*trees)
    for end in range(-1, len(joint.tree)):
        if end >= 0 and joint.tree.parents[end] < -1:
            continue
        accepted = joint.tree.path_to(end)
        tokens = joint.tree.tokens[accepted].tolist()
        paths, found = joint.split(Outcome(accepted, joint.tree, torch.empty(0), torch.empty(0)))
        for path, tree, own in zip(paths, trees, found, strict=True):
            assert torch.equal(tree.tokens, own.tokens)
            assert torch.equal(tree.parents, own.parents)
            known = set(paths_of(tree))
            longest = max(d for d in range(len(tokens) + 1) if d == 0 or tuple(tokens[:d]) in known)
            # Of siblings with the same token only one matches the node that was accepted, and the others have children too.
            assert len(path) <= longest if repeats else len(path) == longest
            assert [tree.tokens[node].item() for node in path] == tokens[: len(path)]
            assert path == (tree.path_to(path[-1]) if path else [])
    rows = [[*range(len(trees[0]) + 1)], joint.rows.tolist()]
    for tree, own in zip(trees, rows, strict=True):
        assert own[0] == 0
        for node, row in enumerate(own[1:]):
            if tree.parents[node] >= -1:
                assert [*joint.tree.tokens[joint.tree.path_to(row - 1)]] == [*tree.tokens[tree.path_to(node)]]


def test_the_order_of_siblings_and_what_is_merged():
    first, second = TokenTree([5, 6, 7], [-1, 0, -1]), TokenTree([8, 5, 9, 6, 4], [-1, -1, 1, 1, 3])
    tree = join(first, second).tree
    assert tree.tokens.tolist() == [5, 6, 7, 8, 9, 4]
    assert tree.parents.tolist() == [-1, 0, -1, -1, 0, 1]


def test_what_is_no_node_matches_nothing():
    match = merging.match_paths(torch.tensor([5, 5, 5, 5, 6, 6]), torch.tensor([-1, -2, -2, -1, 0, 3]), 2)
    assert match.tolist() == [0, 1, 2, 0, 4, 4]


class Spy:
    """A drafter within Combine whose every outcome is compared with fresh prefills of the target."""

    def __init__(self, drafter, target, log, layers=()):
        self.drafter, self.target, self.log, self.layers = drafter, target, log, layers

    @property
    def max_nodes(self):
        return self.drafter.max_nodes

    def start(self, target, sampling, max_length):
        return SpyProposer(self, self.drafter.start(target, sampling, max_length))


class SpyProposer:
    def __init__(self, spy, proposer):
        self.spy, self.proposer, self.committed = spy, proposer, None

    def propose(self, committed, limit, uniforms):
        self.text, self.committed = committed, list(committed)
        self.tree = self.proposer.propose(committed, limit, uniforms)
        return self.tree

    def observe(self, outcome):
        if self.committed is not None and len(outcome.logits) and len(self.text) == len(self.committed):
            self.spy.log.append((self, outcome))
            if len(outcome.tree):
                self.check(outcome)
        self.proposer.observe(outcome)

    def check(self, outcome):
        target, layers = self.spy.target, self.spy.layers
        assert torch.equal(outcome.tree.tokens, self.tree.tokens)
        assert torch.equal(outcome.tree.parents, self.tree.parents)
        assert len(outcome.logits) == len(self.tree) + 1
        for node in range(-1, len(self.tree)):
            if node < 0 or self.tree.parents[node] >= -1:
                path = self.tree.tokens[self.tree.path_to(node)].tolist()
                alone = target(torch.tensor([self.committed + path]), target.new_cache(), rows=1).logits[0, 0]
                torch.testing.assert_close(outcome.logits[node + 1], alone, rtol=0, atol=1e-12)
        own = self.tree.tokens[outcome.accepted].tolist()
        assert outcome.accepted == (self.tree.path_to(outcome.accepted[-1]) if outcome.accepted else [])
        T = len(outcome.hidden)
        assert len(own) < T
        assert (outcome.layers is None) == (not layers)
        self.own, self.rows, self.inner = own, outcome.hidden, outcome.layers

    def after(self, committed):
        """Once the round's tokens are known: the features are those of the root and the whole accepted path."""
        T, layers = len(self.rows), self.spy.layers
        accepted = committed[len(self.committed) : len(self.committed) + T - 1]
        known = set(paths_of(self.tree))
        assert self.own == max((accepted[:d] for d in range(T) if d == 0 or tuple(accepted[:d]) in known), key=len)
        fresh = self.spy.target(torch.tensor([self.committed + accepted]), self.spy.target.new_cache(), layers=layers)
        torch.testing.assert_close(self.rows, fresh.hidden[0, -T:], rtol=0, atol=1e-12)
        if layers:
            torch.testing.assert_close(self.inner, fresh.layers[0, -T:], rtol=0, atol=1e-12)
        return len(self.own), T - 1


@pytest.mark.parametrize(("nested", "sampling"), [(False, GREEDY), (True, GREEDY), (True, Sampling())],
                         ids=["pair, T=0", "nested, T=0", "nested, T=1"])
def test_each_drafter_observes_its_own_tree(target, form, nested, sampling):
    log = []
    lookup = Spy(PromptLookup(2, 3, candidates=2), target, log, layers=(2, 0))
    tree = Spy(DraftModel(target.truncated(2), tree=full_tree([2, 1])), target, log, layers=(1, 2))
    window = Spy(Lookahead(2, 3, 2), target, log)
    drafter = Combine(Combine(window, tree), lookup) if nested else Combine(tree, lookup)
    assert drafter.layers == (1, 2, 0)
    committed, longest = list(PROMPT), len(PROMPT) + 16
    request = decoding.Request(committed, longest, drafter.start(target, sampling, longest), Uniforms(1), drafter.layers)
    shorter = 0
    for _ in decoding.rounds(target, target.new_cache(longest + drafter.max_nodes), [request], sampling):
        ended = [proposer.after(committed) for proposer, outcome in log if len(outcome.tree)]
        if len(ended) == len(log):
            assert max((own for own, _ in ended), default=0) <= max((whole for _, whole in ended), default=0)
            if sampling.greedy and ended:
                assert max(own for own, _ in ended) == ended[0][1], "the joint path is the longer of the two, at temperature 0"
            shorter += sum(own < whole for own, whole in ended)
        log.clear()
    assert shorter, "the accepted path never left a drafter's own tree: the test shows little"


@pytest.mark.parametrize("name", ["chain + lookup", "two trees", "nested right"])
def test_after_every_round_the_caches_of_the_drafts_equal_a_fresh_prefill(target, form, name):
    """Dropped slots poisoned with NaN, as in test_decoding.py."""
    drafter, committed, longest = pairs(target)[name], list(PROMPT), 40
    proposer = drafter.start(target, GREEDY, longest)
    inner, drafts = [proposer], []
    while inner:
        one = inner.pop()
        inner += [one.first, one.second] if hasattr(one, "first") else []
        drafts += [one] if hasattr(one, "cache") else []
    assert drafts
    request = decoding.Request(committed, longest, proposer, Uniforms(3))
    for _ in decoding.rounds(target, target.new_cache(longest + drafter.max_nodes), [request], GREEDY):
        for draft in drafts:
            length = draft.cache.length
            assert length < len(committed)
            draft.cache.keys[:, :, :, length:], draft.cache.values[:, :, :, length:] = float("nan"), float("nan")
            after = draft.model(torch.tensor([committed[length:]]), draft.cache, rows=1).logits
            draft.cache.rollback(length)
            fresh = draft.model(torch.tensor([committed]), draft.model.new_cache(), rows=1).logits
            torch.testing.assert_close(after, fresh, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [*pairs(tiny_model(1, 11, 3)), "iid"])
def test_greedy_text_is_that_of_plain_decoding(target, name):
    drafter = iid_pair(target) if name == "iid" else pairs(target)[name]
    for prompt, n in ((PROMPT, 100), ([4], 12), (PROMPT, 3)):
        run = generate(target, prompt, drafter, GREEDY, max_new_tokens=n)
        assert run.tokens == plain_text(target, tuple(prompt))[:n]
        assert all(round.drafted < n for round in run.rounds)


@pytest.mark.parametrize("name", ["chain + lookup", "nested right"])
def test_greedy_text_with_padding_and_in_a_batch(target, form, name):
    prompts = [PROMPT, [4], [7, 7, 7]]
    batch = generate(target, prompts, pairs(target)[name], GREEDY, max_new_tokens=30)
    for one, prompt in zip(batch, prompts, strict=True):
        assert one.tokens == plain_text(target, tuple(prompt))[:30]


def test_a_width_that_just_holds_the_tree(target):
    drafter = Combine(DraftModel(tiny_model(2, 11, 1, 1.5), 3), PromptLookup(3, 2, candidates=2))
    plain = generate(target, PROMPT, None, GREEDY, max_new_tokens=20, width=8).tokens
    assert generate(target, PROMPT, drafter, GREEDY, max_new_tokens=20, width=8).tokens == plain
    with pytest.raises(ValueError, match="at most 6 nodes, got 1 prompts and 7 nodes"):
        generate(target, PROMPT, drafter, GREEDY, max_new_tokens=20, width=7)


def test_at_least_as_good_as_the_better_of_the_two(form):
    """Each behind the same texts, from a fresh start, at temperature 0."""
    better = []
    for seed in range(4):
        target, draft = tiny_model(seed, 5, scale=1.5), tiny_model(seed + 50, 5, 1, 1.5)
        drafters = DraftModel(draft, tree=full_tree([2, 1, 1])), PromptLookup(2, 5, candidates=2)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(5):
            text = torch.randint(5, (12,), generator=generator).tolist()
            text += generate(target, text, None, GREEDY, max_new_tokens=6).tokens
            first, second, joint, reverse = (
                next(decoding.stream(target, text, drafter, GREEDY, max_new_tokens=8)).accepted
                for drafter in (*drafters, Combine(*drafters), Combine(*drafters[::-1]))
            )
            assert joint == reverse == max(first, second)
            better.append(first > second if first != second else None)
    assert {True, False} <= set(better), "always the same drafter is the better one: the test shows little"


@pytest.mark.parametrize("history", [0, 2])
@pytest.mark.parametrize("name", ["chain + lookup", "two trees", "lookahead + lookup", "iid"])
def test_a_round_has_the_targets_law(form, name, history):
    """Exactly, and for the very tokens that were drawn: the draft's numbers are fixed, and the coins alone are enumerated."""
    target, draft, shape = tiny_model(1), tiny_model(2, layers=1), full_tree([2, 1])
    drafter = {
        "chain + lookup": Combine(DraftModel(draft, 2), PromptLookup(2, 2)),
        "two trees": Combine(DraftModel(draft, tree=shape), DraftModel(target.truncated(1), tree=shape)),
        "lookahead + lookup": Combine(Lookahead(2, 2, 1), PromptLookup(2, 2)),
        "iid": Combine(DraftModel(draft, tree=shape, siblings="iid"), PromptLookup(2, 2)),
    }[name]
    for edge in (0, 1):
        assert law_distance(*law_of_round(target, drafter, (0, 2, 0, 2, 1, 0), history, 2, Sampling(), edge)) < 1e-12


def keeps_q(first, second):
    """The fault: the first drafter's q for the children of both."""
    joint = join(first, second)
    if first.q is not None:
        joint.tree.q = torch.cat([first.q, first.q.new_zeros(len(joint.tree) - len(first), first.q.shape[-1])])
    return joint


@pytest.mark.parametrize("joined", [join, keeps_q])
def test_first_tokens_fit_the_target_and_a_kept_q_does_not(joined, monkeypatch):
    """The draws averaged over too. The tree always holds, beside the draw, the token that the draft underrates most: with the
    first drafter's q the law is off by a total variation of 0.55."""
    monkeypatch.setattr(combine, "join", joined)
    target, draft, prompt = tiny_model(3, scale=1.5), tiny_model(10, layers=1, scale=1.5), (0, 2, 1)
    p, q = (probability_table(model, Sampling())(prompt) for model in (target, draft))
    drafter = Combine(DraftModel(draft, 1), Fixed((int((p / q).argmax()),), (-1,)))
    counts = [0, 0, 0]
    for seed in range(150):
        counts[generate(target, list(prompt), drafter, max_new_tokens=2, seed=seed).tokens[0]] += 1
    fit = goodness_of_fit(counts, p, false_fail=1e-6)
    assert fit.detectable_tv < 0.55
    assert bool(fit) == (joined is join), str(fit)


def test_the_two_drafters_draw_independently():
    """The second one's numbers are those behind the first one's, also when it is a Combine."""
    model, uniforms = tiny_model(1, 11), Uniforms(3)
    seen = []

    class Listening(Fixed):
        def propose(self, committed, limit, uniforms):
            seen.append(uniforms.draw(Purpose.DRAFT, len(committed), 2))
            return super().propose(committed, limit, uniforms)

    one = Listening((1, 2), (-1, 0))
    Combine(one, Combine(one, one)).start(model, Sampling(), 20).propose(PROMPT, 5, uniforms)
    assert torch.equal(torch.cat(seen), uniforms.draw(Purpose.DRAFT, len(PROMPT), 6))


def test_nothing_is_asked_of_the_device():
    """The meta device has no values: whoever asks for one fails. The outcome's tree is on the host, as the loop makes it."""
    target = tiny_model(1, vocab_size=11).to("meta")
    drafter = Combine(Combine(Lookahead(2, 3, 2), PromptLookup(2, 3, candidates=2)), DraftModel(target, 2))
    proposer, committed = drafter.start(target, Sampling(), 50), list(PROMPT)
    for _ in range(4):
        tree = proposer.propose(committed, 40, Uniforms(0))
        assert tree.tokens.is_meta
        N = len(tree)
        on_host = TokenTree([1] * N, list(range(-1, N - 1)))
        proposer.observe(Outcome([0], on_host, torch.empty(N + 1, 11, device="meta"), torch.empty(2, 16, device="meta")))
        committed += [1, 2]


def test_the_sizes_add_up_and_unfit_drafters_are_named(target):
    lookup, other = PromptLookup(3, 4, candidates=3), DraftModel(tiny_model(0, vocab_size=7), 2)
    assert Combine(lookup, Combine(Lookahead(2, 3, 1), lookup)).max_nodes == 12 + 6 + 12
    assert Combine(lookup, other).layers == ()
    with pytest.raises(ValueError, match="vocabulary of 7 tokens and the target of 11"):
        generate(target, PROMPT, Combine(lookup, other))
