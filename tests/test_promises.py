"""What a drafter of somebody else's may get wrong. A wrong q biases the text without a word: it is refused, and so is whatever else breaks
a promise of `specdec.drafters.base`, before anything is lost."""

import gc
from dataclasses import dataclass, field

import pytest
import torch
from drafters_under_test import DRAFTERS
from tiny import probability_table, tiny_model

from specdec import decoding
from specdec.decoding import generate, round_of, stream
from specdec.distributions import Sampling, inverse_cdf
from specdec.drafters import Combine, PromptLookup, checking
from specdec.law import law, law_distance
from specdec.models.transformer import Transformer
from specdec.tree import TokenTree
from specdec.uniforms import Purpose, Uniforms

V, PROMPT = 11, [1, 2, 3, 1, 2]


@pytest.fixture
def target():
    return tiny_model(1, V, scale=1.5)


@dataclass
class Drawing:
    """A drafter that draws one token from q (V,), and declares `declare(q, token)`."""

    q: torch.Tensor
    declare: object = staticmethod(lambda q, token: q)
    max_nodes: int = 1

    def start(self, target, sampling, max_length):
        return self

    def propose(self, committed, limit, uniforms):
        token = inverse_cdf(self.q, uniforms.draw(Purpose.DRAFT, len(committed), 1)[0])
        return TokenTree.chain(token[None], self.declare(self.q, int(token))[None])

    def observe(self, outcome):
        """It learns nothing."""


def changed(q, token, value):
    return q.index_fill(0, torch.tensor(token), value)


WRONG = {
    "a negative number": (lambda q, token: changed(q, (token + 1) % len(q), -0.5), r"row 0 of q has -0\.5 at token \d+; .* must be >= 0"),
    "logits": (lambda q, token: q.log(), r"row 0 of q has -[\d.]+ at token \d+; a probability must be >= 0"),
    "a sum above 1": (lambda q, token: q * 3, r"row 0 of q sums to 3; what tokens are drawn from must sum to 1"),
    "a sum below 1": (lambda q, token: q / 3, r"row 0 of q sums to 0\.333333; .* must sum to 1"),
    "a number that is infinite": (lambda q, token: changed(q, token, torch.inf), "row 0 of q sums to inf; .* must sum to 1"),
    "0 for the token": (
        lambda q, token: torch.eye(len(q), dtype=q.dtype)[(token + 1) % len(q)],
        r"row 0 of q has 0 for token \d+, which was drafted from it: it must be > 0",
    ),
    "a NaN among numbers": (
        lambda q, token: changed(q, (token + 1) % len(q), torch.nan), r"row 0 of q has a NaN at token \d+; .* sum to 1",
    ),
}  # fmt: skip


def law_of_one_round(target, drafter, prompt):
    """The exact law of the first token of a round, in which the drafter draws its one token and the rule throws its coin."""
    q, p = drafter.q, torch.from_numpy(probability_table(target, Sampling())(tuple(prompt)))

    class Chosen:
        """Uniforms that `law` chooses: the draft's token, whether the coin is below what decides, and the next token."""

        def __init__(self, choose):
            self.choose = choose

        def draw(self, purpose, position, n):
            if purpose is Purpose.DRAFT:
                self.token = self.choose.categorical(q.tolist())
                edges = [0, *q.cumsum(0).tolist()]
                return torch.tensor([(edges[self.token] + edges[self.token + 1]) / 2], dtype=torch.float64)
            declared = drafter.declare(q, self.token)
            if purpose is Purpose.VERIFY:
                ratio = float(p[self.token] / declared[self.token]) if declared[self.token] else 1.0
                return torch.tensor([self.choose.uniform([ratio])], dtype=torch.float64)
            # Above the coin the next token comes from the residual; below it only the second token of the round depends on this.
            rest = (p - declared).clamp_min(0)
            rest = rest / rest.sum() if rest.sum() > 0 else p
            token = self.choose.categorical((rest / rest.sum()).tolist())
            edges = [0, *(rest / rest.sum()).cumsum(0).tolist()]
            return torch.tensor([(edges[token] + edges[token + 1]) / 2], dtype=torch.float64)

    def program(choose):
        text, cache = list(prompt), target.new_cache(20)
        with torch.inference_mode():
            if len(text) > 1:
                target(torch.tensor([text[:-1]]), cache, rows=0)
            request = decoding.Request(text, len(text) + 2, drafter, Chosen(choose))
            round_of(target, cache, [request], Sampling())
        return text[len(prompt)]

    return law(program), dict(enumerate(p.tolist()))


def test_the_law_of_a_right_q_is_the_targets():
    """The controls below fail because of their q, not because of how the law is counted."""
    target = tiny_model(1, 3)
    assert law_distance(*law_of_one_round(target, Drawing(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)), [0, 2, 1])) < 1e-12


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_q_would_bias_the_text_and_is_refused(name, target, monkeypatch):
    declare, message = WRONG[name]
    q = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    small = tiny_model(1, 3)
    with pytest.raises(ValueError, match=message):
        law_of_one_round(small, Drawing(q, declare), [0, 2, 1])
    with pytest.raises(ValueError, match=message):
        generate(target, PROMPT, Drawing(torch.full((V,), 1 / V), declare), max_new_tokens=8)
    monkeypatch.setattr(decoding, "check_proposal", lambda *arguments: None)
    distance = max(law_distance(*law_of_one_round(small, Drawing(q, declare), prompt)) for prompt in ([0, 2, 1], [0], [1, 1]))
    assert distance > 1e-2, "without the check this q would have to bias the text, or it is no fault"


def tree_of(q, tokens, parents, siblings="without_replacement"):
    return TokenTree(tokens, parents, torch.as_tensor(q, dtype=torch.float64), siblings)


HALF, NONE = [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]
TREES = {
    "a row below the root": (tree_of([HALF, [0.5, 0.6, 0.0], NONE], [0, 1], [-1, 0]), "row 1 of q sums to 1.1"),
    "a token drawn twice without replacement": (
        tree_of([HALF, NONE, NONE], [0, 0], [-1, -1]), "row 0 of q has 0 for token 0, .* an earlier sibling took it",
    ),
    "a token of no probability beside one that has": (tree_of([HALF, NONE, NONE], [0, 2], [-1, -1]), "row 0 of q has 0 for token 2"),
    "a token of no probability, independent draws": (
        tree_of([[1.0, 0, 0], NONE, NONE], [0, 2], [-1, -1], "iid"), "row 0 of q has 0 for token 2",
    ),
}  # fmt: skip
RIGHT = {
    "a token drawn twice, independently": tree_of([HALF, NONE, NONE], [0, 0], [-1, -1], "iid"),
    "q has run out": tree_of([HALF, NONE, NONE, NONE], [1, 0, 2], [-1, -1, -1]),
    "point masses beside draws": tree_of([HALF, NONE, NONE], [1, 2], [-1, 0]),
    "a row that nothing was drawn from": tree_of([HALF, [7.0, -1.0, 0.0]], [1], [-1]),
    "no node": tree_of([HALF, [9.0, 0, 0], NONE], [1, 0], [-1, -2]),
    "all NaN": tree_of(torch.full((3, 3), torch.nan), [2, 2], [-1, -1]),
    "half precision": TokenTree.chain([1], torch.rand(1, 5000).softmax(-1).bfloat16()),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_a_q_that_a_trees_tokens_cannot_come_from_is_refused(name):
    tree, message = TREES[name]
    with pytest.raises(ValueError, match=message):
        checking.check_proposal(tree, 5, 5, 3)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_q_is_none_of_these(name):
    tree = RIGHT[name]
    checking.check_proposal(tree, 5, 5, tree.q.shape[-1], torch.device("cpu"), strict=True)


def large(fault):
    """A q that is too large to be looked at as a whole in every round."""
    q = torch.full((1, 5000), 1 / 5000)
    q[0, 7] += fault
    return TokenTree.chain([8], q)


def test_a_large_q_is_looked_at_as_a_whole_where_it_is_strict(monkeypatch):
    with pytest.raises(ValueError, match=r"row 0 of q sums to 1\.5"):
        checking.check_proposal(large(0.5), 5, 5, 5000, strict=True)
    monkeypatch.setattr(checking, "_check_rows", lambda *_: pytest.fail("this takes time in every round"))
    checking.check_proposal(large(0.5), 5, 5, 5000)
    tree = large(0)
    tree.q[0, 8] = 0
    with pytest.raises(ValueError, match="row 0 of q has 0 for token 8"):  # what costs nothing is looked at always
        checking.check_proposal(tree, 5, 5, 5000)


def test_a_drafter_is_looked_at_closely_while_it_is_new(target, monkeypatch):
    """Its first rounds, in whichever of its texts they fall; another of its kind is new again, and so is one that it is equal to."""
    strict, check = [], decoding.check_proposal
    monkeypatch.setattr(checking, "STRICT_ROUNDS", 3)
    monkeypatch.setattr(decoding, "check_proposal", lambda *arguments: strict.append(arguments[5]) or check(*arguments))
    uniform = torch.full((V,), 1 / V, dtype=torch.float64)
    drafter, other = Drawing(uniform), Drawing(uniform)
    generate(target, PROMPT, drafter, max_new_tokens=3)
    before = len(strict)
    assert before < 3
    generate(target, PROMPT, drafter, max_new_tokens=12)
    assert strict == [True] * 3 + [False] * (len(strict) - 3)
    strict.clear()
    generate(target, PROMPT, other, max_new_tokens=12)
    assert strict[:4] == [True] * 3 + [False]
    known = len(checking._known)
    del drafter, other
    gc.collect()
    assert len(checking._known) <= known - 2, "a drafter that is gone must not be remembered: another may get its place in memory"


def test_trees_without_a_q_do_not_make_a_drafter_known(target, monkeypatch):
    monkeypatch.setattr(checking, "STRICT_ROUNDS", 3)
    drafter = PromptLookup(1, 2)
    generate(target, PROMPT, drafter, max_new_tokens=20)
    assert checking.acquaintance(drafter).is_new


@dataclass(slots=True)
class Slotted:
    """No weak reference to it is possible."""

    max_nodes: int = 1

    def start(self, target, sampling, max_length):
        return Drawing(torch.full((V,), 1 / V, dtype=torch.float64))


def test_a_drafter_that_cannot_be_remembered_stays_new(target):
    assert len(generate(target, PROMPT, Slotted(), max_new_tokens=8).tokens) == 8
    assert checking.acquaintance(Slotted()).is_new


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_of_the_library_keeps_what_it_promises_of_q(name, target, monkeypatch):
    assert checking.STRICT_ROUNDS > 10**9, "the tests look at every q"
    rows, look = [], checking._check_rows
    monkeypatch.setattr(checking, "_check_rows", lambda q, of: rows.append(len(of)) or look(q, of))
    drafter = DRAFTERS[name](target)
    generate(target, PROMPT, drafter, Sampling(0.7, top_p=0.9), max_new_tokens=30)
    parts = [drafter, *(getattr(drafter, part, None) for part in ("first", "second"))]
    assert bool(rows) == any(getattr(part, "shape", None) is not None for part in parts), "those that draw declare a q"


# What else a drafter may lack or do.


@dataclass
class Honest:
    """A drafter of point masses, in whose place others put something wrong."""

    max_nodes: int = 4
    layers: tuple = ()
    seen: list = field(default_factory=list)

    def start(self, target, sampling, max_length):
        return self

    def propose(self, committed, limit, uniforms):
        return TokenTree.chain(torch.tensor([1, 2][:limit]))

    def observe(self, outcome):
        """It learns nothing."""


class Without:
    """What it is made of, less an attribute."""

    def __init__(self, whole, name):
        self.__dict__["whole"], self.__dict__["name"] = whole, name

    def __getattr__(self, name):
        if name == self.name:
            raise AttributeError(name)
        return getattr(self.whole, name)

    def __repr__(self):
        return f"Without({self.name})"


class Started(Honest):
    """What starts it gets something else than a proposer."""

    def __init__(self, proposer):
        super().__init__()
        self.proposer = proposer

    def start(self, target, sampling, max_length):
        return self.proposer


UNFIT = {
    "a name": ("prompt-lookup", r"the drafter must have start and max_nodes, got 'prompt-lookup' without start and max_nodes"),
    "an empty name": ("", "the drafter must have start and max_nodes, got '' without"),
    "a class": (PromptLookup, "the drafter must be an object, got the class PromptLookup: make one of it"),
    "a model": (tiny_model(0, V), "the drafter must have start and max_nodes, got Transformer"),
    "no max_nodes": (Without(Honest(), "max_nodes"), r"got Without\(max_nodes\) without max_nodes"),
    "no start": (Without(Honest(), "start"), r"got Without\(start\) without start"),
    "a max_nodes that is no number": (Honest(max_nodes="4"), "the drafter's max_nodes must be a whole number >= 0, got '4'"),
    "a max_nodes below 0": (Honest(max_nodes=-1), "the drafter's max_nodes must be a whole number >= 0, got -1"),
    "layers that are none": (Honest(layers=3), r"the drafter reads the target's layers 3, which must lie in \[0, 2\)"),
    "layers by name": (Honest(layers=("last",)), r"the target's layers \('last',\), which must lie in \[0, 2\)"),
    "no observe": (Started(Without(Honest(), "observe")), r"proposer of Started must have propose and observe, .* without observe"),
    "no propose": (Started(Without(Honest(), "propose")), r"proposer of Started must have propose and observe, .* without propose"),
    "no proposer": (Started(None), "proposer of Started must have propose and observe, got None without propose and observe"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_what_is_no_drafter_is_named_before_any_work(name, target, monkeypatch):
    monkeypatch.setattr(Transformer, "forward", lambda *_, **__: pytest.fail("the target ran before the error"))
    drafter, message = UNFIT[name]
    for prompt in (PROMPT, [PROMPT, PROMPT]):
        with pytest.raises(ValueError, match=message):
            stream(target, prompt, drafter, max_new_tokens=8)
    if "layers" not in name:
        for join in (lambda d: Combine(PromptLookup(), d), lambda d: Combine(d, PromptLookup())):
            with pytest.raises(ValueError, match=message):
                stream(target, PROMPT, join(drafter), max_new_tokens=8)


class Greedy(Honest):
    """It changes the list that it is shown: at once, or when it hears what became of the tree."""

    def __init__(self, change, late=False):
        super().__init__()
        self.change, self.late = change, late

    def propose(self, committed, limit, uniforms):
        self.shown = committed
        if not self.late:
            self.change(committed)
        return super().propose(committed, limit, uniforms)

    def observe(self, outcome):
        if self.late and hasattr(self, "shown"):
            self.change(self.shown)


CHANGES = {
    "longer": lambda text: text.append(0), "shorter": lambda text: text.pop(), "another token": lambda text: text.__setitem__(2, 0),
    "empty": lambda text: text.clear(),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_proposer_that_changes_the_text_is_named_and_the_text_stays(name, target, monkeypatch):
    for drafter in (Greedy(CHANGES[name]), Combine(PromptLookup(), Greedy(CHANGES[name]))):
        request = decoding.Request.begin(target, list(PROMPT), 8, drafter, Sampling(0), Uniforms(0))
        with pytest.raises(ValueError, match="the proposer changed `committed`, the 5 tokens that it was shown"):
            next(decoding.rounds(target, target.new_cache(40), [request], Sampling(0)))
        assert request.committed == PROMPT
    plain = generate(target, PROMPT, None, Sampling(0), 12).tokens
    assert generate(target, PROMPT, Greedy(CHANGES[name], late=True), Sampling(0), 12).tokens == plain, "it has a copy"


ELSEWHERE = {
    "tokens": lambda: TokenTree.chain(torch.ones(1, dtype=torch.long, device="meta")),
    "q": lambda: TokenTree.chain(torch.ones(1, dtype=torch.long), torch.ones(1, V, device="meta")),
    "nothing": lambda: TokenTree.empty("meta"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_tree_on_another_device_is_named_before_the_target_runs(name, target, monkeypatch):
    class Elsewhere(Honest):
        def propose(self, committed, limit, uniforms):
            return ELSEWHERE[name]()

    monkeypatch.setattr(Transformer, "forward", lambda *_, **__: pytest.fail("the target ran before the error"))
    for drafter in (Elsewhere(), Combine(PromptLookup(), Elsewhere())):
        with pytest.raises(ValueError, match=r"a tree's tokens and q must lie on cpu as the target does, got .*meta"):
            generate(target, PROMPT[:1], drafter, max_new_tokens=8)
