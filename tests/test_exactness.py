"""The whole loop, exactly: the joint law of the first tokens of `generate` is the target's own. And wrong rules are caught."""

from dataclasses import replace

import pytest
import torch
from drafters_under_test import DRAFTERS
from tiny import law_of_generate, law_of_round, probability_table, reference_law, tiny_model

from specdec import judging
from specdec.distributions import Sampling, inverse_cdf, residual
from specdec.drafters import DraftModel, PromptLookup, eagle
from specdec.law import law_distance
from specdec.verification import Verdict, verify_chain, walk, walk_greedily

PROMPT, LENGTH = (0, 2, 0, 2, 1, 0), 3  # a prompt in which prompt lookup finds something
SAMPLINGS = {"T=1": Sampling(), "T=0.7, top-p": Sampling(0.7, top_p=0.9), "T=0": Sampling(0), "top-k, min-p": Sampling(2, 2, None, 0.2)}


WAYS = {"walk": True, "tensors": False}  # how a round is decided: as for one text on a CPU, and as on an accelerator


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request, monkeypatch):
    take(request.param, monkeypatch)
    return request.param


def take(walk: bool, monkeypatch) -> None:
    for module in (judging, eagle):
        monkeypatch.setattr(module, "on_host", lambda device: walk)


def table_of(model, sampling):
    """What a draft model draws from, by fresh prefills."""
    table = probability_table(model, sampling)
    return lambda committed, path: table(committed + path)


def measure(drafter_name: str, k: int, sampling: Sampling, edge: int, length: int = LENGTH) -> float:
    """TV between the law of generate and the target's."""
    target, draft = tiny_model(1), tiny_model(2, layers=1)
    drafter, model = {
        "none": lambda: (None, draft),
        "draft-model": lambda: (DraftModel(draft, k), draft),
        "truncated": lambda: (DraftModel(target.truncated(1), k), target.truncated(1)),
        "prompt-lookup": lambda: (PromptLookup(ngram=2, k=k), draft),
    }[drafter_name]()
    found = law_of_generate(target, drafter, table_of(model, sampling), PROMPT, length, sampling, edge)
    return law_distance(found, reference_law(probability_table(target, sampling), PROMPT, length))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize(("drafter", "k"), [("none", 0), ("draft-model", 0), ("draft-model", 1), ("draft-model", 2),
                                            ("truncated", 2), ("prompt-lookup", 2)])
def test_generate_has_the_targets_joint_law(drafter, k, sampling, way):
    for edge in (0, 1):
        assert measure(drafter, k, sampling, edge) < 1e-12, f"{drafter} with K = {k} changes the target's distribution"


def wrong_rule(accept, resample=residual, bonus="p"):
    """verify_chain with its parts exchanged: accept(u, p_x, q_x), resample(p, q), bonus from "p" or "q"."""

    def verify(p, q, tokens, u):
        K = tokens.shape[-1]
        if K == 0:
            return verify_chain(p, q, tokens, u)
        (p,), (q,), (tokens,), (u,) = p, q, tokens, u  # a batch of one
        chosen = tokens.unsqueeze(-1)
        p_x, q_x = p[..., :K, :].gather(-1, chosen).squeeze(-1), q.gather(-1, chosen).squeeze(-1)
        count = int(accept(u[..., :K], p_x, q_x).long().cumprod(-1).sum())
        if count < K:
            row = resample(p[count], q[count])
        else:
            row = p[K] if bonus == "p" else q[K - 1]
        return Verdict(torch.tensor([count]), inverse_cdf(row, u[K])[None])

    return verify


def right(u, p, q):
    return u * q < p


WRONG = {
    "q/p instead of p/q": wrong_rule(lambda u, p, q: u * p < q),
    "accepts above the ratio": wrong_rule(lambda u, p, q: u * q > p),
    "accepts with probability p": wrong_rule(lambda u, p, q: u < p),
    "always accepts": wrong_rule(lambda u, p, q: u < 2),
    "accepts iff p >= q": wrong_rule(lambda u, p, q: p >= q),
    "resamples from p": wrong_rule(right, lambda p, q: p),
    "residual (q - p)+": wrong_rule(right, lambda p, q: residual(q, p)),
    "residual |p - q|": wrong_rule(right, lambda p, q: (p - q).abs()),
    "softmax of the residual": wrong_rule(right, lambda p, q: residual(p, q).softmax(-1)),
    "argmax of the residual": wrong_rule(right, lambda p, q: torch.eye(len(p), dtype=p.dtype)[residual(p, q).argmax()]),
    "bonus from q": wrong_rule(right, bonus="q"),
}


@pytest.mark.parametrize("rule", WRONG.values(), ids=WRONG)
def test_negative_control_wrong_rules_change_the_law(rule, monkeypatch):
    take(WAYS["tensors"], monkeypatch)
    monkeypatch.setattr(judging, "verify_chain", rule)
    # Two tokens: a first one, then a bonus or a second round. Both edges: a threshold too low shows only at the upper one.
    distance = max(measure("draft-model", 1, SAMPLINGS["T=1"], edge, length=2) for edge in (0, 1))
    assert distance > 1e-3, "the exactness test cannot tell this wrong rule from the right one"


def test_negative_control_a_draft_that_declares_another_q(monkeypatch):
    """Argmax drafts with a soft q, the fault that many projects shipped."""
    real = DraftModel.start

    def start(self, target, sampling, max_length):
        proposer = real(self, target, sampling, max_length)
        original = proposer.propose

        def propose(committed, limit, uniforms):
            tree = original(committed, limit, uniforms)
            if tree.q is not None:
                tree.tokens = tree.q[: len(tree)].argmax(-1)
            return tree

        proposer.propose = propose
        return proposer

    monkeypatch.setattr(DraftModel, "start", start)
    with pytest.raises(AssertionError, match="did not draw from the distribution that it declares"):
        measure("draft-model", 1, SAMPLINGS["T=1"], edge=0, length=2)


def test_the_wrong_rule_builder_is_right_with_the_right_parts(monkeypatch):
    """The controls fail because of the part that was exchanged, not because of how they are built."""
    take(WAYS["tensors"], monkeypatch)
    monkeypatch.setattr(judging, "verify_chain", wrong_rule(right))
    assert measure("draft-model", 2, SAMPLINGS["T=1"], 0) < 1e-12
    monkeypatch.setattr(judging, "verify_chain", verify_chain)
    assert measure("draft-model", 2, SAMPLINGS["T=1"], 0) < 1e-12


# -- one round of every drafter, behind any text -------------------------------------------------------------------------------

DEPTH = 2  # the deepest path that the round has room for
METHODS = {name: sampling for name, sampling in SAMPLINGS.items() if name != "top-k, min-p"}


def distance(name, sampling, history, edge):
    target = tiny_model(1, layers=3)
    return law_distance(*law_of_round(target, DRAFTERS[name](target), PROMPT, history, DEPTH, sampling, edge))


@pytest.mark.parametrize("sampling", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_round_of_every_drafter_has_the_targets_law(name, sampling, way):
    for edge in (0, 1):
        assert distance(name, sampling, history=2, edge=edge) < 1e-12, f"{name} changes the target's distribution"


def accepts_everything(verify):
    """A rule that accepts whatever was drafted first."""
    if verify is walk:
        return lambda p, *rest: walk(lambda row: torch.full_like(p(row), 1.0), *rest)
    if verify is walk_greedily:
        # Of a p that likes all tokens alike it would take another next token than the best.
        return lambda best, tree: walk_greedily(
            lambda row: (tree.tokens[tree.parents == row - 1].tolist() or [(best(row) + 1) % 3])[0], tree
        )
    return lambda p, *rest: verify(torch.full_like(p, 1.0), *rest)


def forgets_the_rejected(verify):
    """A rule that draws the next token from p itself where it rejected something."""
    if verify is walk:
        return lambda p, *rest: (path := walk(p, *rest)[0], p(path[-1] + 1 if path else 0))

    def wrong(p, *rest):
        verdict = verify(p, *rest)
        row = p.gather(-2, _at(verdict, rest).view(-1, 1, 1).expand(-1, 1, p.shape[-1])).squeeze(-2)
        return replace(verdict, next_token=inverse_cdf(row, rest[-1][..., -1]))

    def _at(verdict, rest):
        if verdict.path is None:
            return verdict.count
        last = verdict.path.gather(-1, (verdict.count - 1).clamp_min(0).unsqueeze(-1)).squeeze(-1)
        return torch.where(verdict.count > 0, last + 1, 0)

    return wrong


# At temperature 0 the argmax of p is right whatever was rejected; and a draft that is the target is never rejected.
CONTROLS = [(sampling, wrong) for sampling in METHODS for wrong in (accepts_everything, forgets_the_rejected)]
CONTROLS.remove(("T=0", forgets_the_rejected))


RULES = ("walk", "walk_greedily", "verify_chain", "verify_tree")


@pytest.mark.parametrize(("sampling", "wrong"), CONTROLS)
@pytest.mark.parametrize("name", [name for name in DRAFTERS if name != "itself"])
def test_negative_control_a_wrong_rule_changes_the_law_of_every_drafter(name, sampling, wrong, way, monkeypatch):
    for rule in RULES:
        monkeypatch.setattr(judging, rule, wrong(getattr(judging, rule)))
    # Behind some texts the wrong rule is right by accident; behind one of these it shows.
    shown = any(distance(name, METHODS[sampling], history, edge) > 1e-3 for history in range(6) for edge in (0, 1))
    assert shown, "the exactness test cannot tell this wrong rule from the right one"
