"""Every wrong value is named, with what was expected, before any work is done: no forward of the target, nothing written.

What can only be seen while a text is made is caught in its round: a proposer that breaks its promises before the target runs, and
logits that no token can be drawn from before one is committed.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from drafters_under_test import DRAFTERS, draft_of, eagle_1, eagle_3, medusa
from safetensors import safe_open
from safetensors.torch import save_file
from tiny import tiny_model

from specdec import decoding
from specdec.cache import CacheFull, KVCache
from specdec.config import Config
from specdec.decoding import generate, rounds, stream
from specdec.distributions import Sampling, inverse_cdf
from specdec.drafters import Combine, DraftModel, Eagle, EagleHead, Lookahead, Medusa, MedusaHeads, PromptLookup
from specdec.drafters.growing import Shape
from specdec.drafters.medusa import MedusaConfig
from specdec.models import checkpoints
from specdec.models.checkpoints import CheckpointError, load_model
from specdec.models.transformer import Transformer, random_model
from specdec.tree import TokenTree, full_tree
from specdec.uniforms import Uniforms
from specdec.verification import verify_chain, verify_tree

PROMPT, V = [1, 2, 3, 1, 2], 11
SHAPE = {
    "vocab_size": V, "hidden_size": 16, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 4, "ffn_size": 32, "max_length": 64,
}  # fmt: skip
SAMPLINGS = {"T=0": Sampling(0), "T=1": Sampling(), "T=0.7, all filters": Sampling(0.7, 8, 0.9, 0.05), "top-k": Sampling(top_k=3)}


@pytest.fixture
def target():
    return tiny_model(1, V, scale=1.5)


@pytest.fixture
def idle(target, monkeypatch):
    """The target; it must not run, and neither may any other model."""
    monkeypatch.setattr(Transformer, "forward", lambda *_, **__: pytest.fail("a model ran before the error: check it earlier"))
    return target


class Tokens:
    """A tokenizer whose ids mean what `words` says."""

    def __init__(self, words):
        self.words = words

    def same_vocabulary(self, other):
        return self.words == other.words

    def encode(self, text):
        return [self.words.index(letter) for letter in text]


def with_tokens(model, words):
    model.tokenizer = Tokens(words)
    return model


# Drafters that do not fit the target.


MISFITS = {
    "draft, vocabulary": (lambda t: DraftModel(tiny_model(0, 7), 2), "vocabulary of 7 tokens and the target of 11"),
    "draft tree, vocabulary": (lambda t: DraftModel(tiny_model(0, 13), tree=[-1, -1]), "vocabulary of 13 tokens and the target of 11"),
    "draft, tokenizer": (lambda t: DraftModel(with_tokens(draft_of(t), "ba"), 2), "gives the same ids another meaning"),
    "draft, context": (
        lambda t: DraftModel(random_model(Config(**SHAPE | {"max_length": 12}), 0, torch.float64), 2),
        "may reach 13 tokens and the draft's context ends at 12",
    ),
    "medusa, vocabulary": (lambda t: Medusa(medusa(tiny_model(0, 7)), [-1]), "vocab_size = 7, this one has 11"),
    "medusa, hidden size": (
        lambda t: Medusa(medusa(random_model(Config(**SHAPE | {"hidden_size": 8}), 0, torch.float64)), [-1]),
        "hidden_size = 8, this one has 16",
    ),
    "medusa, dtype": (lambda t: Medusa(medusa(tiny_model(0, V, dtype=torch.float32)), [-1]), "float32 on cpu, .*float64 on cpu"),
    "eagle-1, vocabulary": (lambda t: Eagle(eagle_1(tiny_model(0, 7)), tree=[-1]), "vocab_size = 7, this one has 11"),
    "eagle-2, hidden size": (
        lambda t: Eagle(eagle_1(random_model(Config(**SHAPE | {"hidden_size": 8}), 0, torch.float64)), 2, 2, 4),
        "hidden_size = 8, this one has 16",
    ),
    "eagle-3, layers": (
        lambda t: Eagle(eagle_3(tiny_model(0, V, layers=3)), 2, 2, 4), r"layers \(0, 1, 2\), this one has 2",
    ),
    "eagle-3, context": (
        lambda t: Eagle(eagle_3(random_model(Config(**SHAPE | {"max_length": 12}), 0, torch.float64)), 2, 2, 4),
        "may reach 13 tokens and the head's context ends at 12",
    ),
    "eagle-3, dtype": (lambda t: Eagle(eagle_3(tiny_model(0, V, dtype=torch.float32)), 2, 2, 4), "float32 on cpu, .*float64"),
    "a part of a combination": (
        lambda t: Combine(PromptLookup(), DraftModel(tiny_model(0, 7), 2)), "vocabulary of 7 tokens and the target of 11",
    ),
    "layers that the target has not": (lambda t: Proposing(None, layers=(0, 2)), r"layers \(0, 2\), which must lie in \[0, 2\)"),
}  # fmt: skip


@pytest.mark.parametrize("batch", [False, True], ids=["alone", "batch"])
@pytest.mark.parametrize("name", MISFITS)
def test_a_drafter_that_does_not_fit_is_refused(idle, name, batch):
    make, message = MISFITS[name]
    if name == "draft, tokenizer":
        with_tokens(idle, "ab")
    prompt = [PROMPT, PROMPT] if batch else PROMPT
    with pytest.raises(ValueError, match=message):
        stream(idle, prompt, make(idle), max_new_tokens=8)


# The arguments of generate and stream.


@pytest.mark.parametrize(("prompt", "message"), [
    (None, "whole numbers in .*, got None"), (5, r"must be a list, .* got shape \(\)"), (1.5, r"got shape \(\)"),
    ({1: 2}, "got {1: 2}"), ({1, 2}, "got {1, 2}"), (object(), "got <object"), (b"ab", "got b'ab'"), ([None], r"got \[None\]"),
    ((x for x in PROMPT), "got <generator"), ([True], r"got \[True\]"), ([1, 2.5], r"got \[1.0, 2.5\]"), ([10**30], r"got \[1000"),
    ([float("nan")], r"got \[nan\]"), ([1, [2]], r"got \[1, \[2\]\]"), ([[1], 2], r"got shape \(\)"), ([[1], ["a"]], r"got \['a'\]"),
    (torch.tensor(3), r"got shape \(\)"), (torch.ones(1, 1, 1), r"got shape \(1, 1, 1\)"), (torch.tensor([1 + 1j]), r"got \[\(1\+1j\)"),
    ([], "at least one token, got none"), ([[]], "at least one token, got none"), (torch.empty(0, 3), "at least one prompt"),
    ([V], r"in \[0, 11\), got \[11\]"), ([1, -1], r"in \[0, 11\), got \[1, -1\]"), ("a", "needs a target with a tokenizer"),
    ([PROMPT, [V]], r"got \[11\]"), (["a", 3], "needs a target with a tokenizer"),
])  # fmt: skip
def test_prompts_of_wrong_type(idle, prompt, message):
    with pytest.raises(ValueError, match=message):
        stream(idle, prompt)


def test_a_text_that_the_tokenizer_makes_nothing_of(idle):
    with pytest.raises(ValueError, match="at least one token, got none"):
        stream(with_tokens(idle, "ab"), "")


@pytest.mark.parametrize(("options", "message"), [
    ({"max_new_tokens": 0}, "max_new_tokens must be a whole number >= 1, got 0"), ({"max_new_tokens": -3}, "got -3"),
    ({"max_new_tokens": 252}, "a prompt of 5 tokens and max_new_tokens = 252 make 257; the model's context is 256"),
    ({"stop_tokens": [V]}, r"stop tokens must be whole numbers in \[0, 11\), got \[11\]"), ({"stop_tokens": [2, -1]}, r"got \[2, -1\]"),
    ({"stop_tokens": {V}}, r"got \[11\]"), ({"stop_tokens": ["a"]}, r"got \['a'\]"), ({"stop_tokens": [1.5]}, r"got \[1.5\]"),
    ({"stop_tokens": None}, "got None"), ({"stop_tokens": 2}, r"stop tokens must be a list, .* got shape \(\)"),
    ({"width": 3}, "width = 3 takes one prompt and a drafter of at most 2 nodes, got 1 prompts and 3 nodes"),
    ({"seed": None}, "seed must be a whole number, got None"), ({"seed": 1.5}, r"seed must be a whole number, got 1\.5"),
    ({"request": "a"}, "request must be a whole number, got 'a'"), ({"width": 8.0}, r"width must be a whole number, got 8\.0"),
    ({"max_new_tokens": 8.0}, r"max_new_tokens must be a whole number >= 1, got 8\.0"), ({"max_new_tokens": "8"}, "got '8'"),
    ({"max_new_tokens": None}, "got None"), ({"max_new_tokens": True}, "got True"), ({"seed": "0"}, "got '0'"),
    ({"width": 0}, "width = 0"), ({"width": -1}, "width = -1"), ({"sampling": 0.7}, "sampling must be a Sampling, got 0.7"),
])  # fmt: skip
def test_options_out_of_range(idle, options, message):
    with pytest.raises(ValueError, match=message):
        stream(idle, PROMPT, **{"drafter": DraftModel(idle, 3), **options})


@pytest.mark.parametrize("stops", [[9], {9}, frozenset([9]), (9,), torch.tensor([9]), range(9, 10)], ids=repr)
def test_stop_tokens_of_every_form_stop(target, stops):
    text = generate(target, PROMPT, None, Sampling(0), 20).tokens
    assert 9 in text[:-1], "the model of this test must say token 9 early; choose another seed"
    assert generate(target, PROMPT, None, Sampling(0), 20, stops).tokens == text[: text.index(9) + 1]


# Proposers that break their promises.


@dataclass(frozen=True)
class Proposing:
    """A drafter whose proposer makes whatever tree it was given: limit → tree."""

    make: object
    max_nodes: int = 4
    layers: tuple = ()

    def start(self, target, sampling, max_length):
        return self

    def propose(self, committed, limit, uniforms):
        return self.make(limit)

    def observe(self, outcome):
        """It learns nothing."""


def chain(*tokens, q=None):
    return TokenTree.chain(torch.tensor(tokens), q)


BROKEN = {
    "more nodes, a chain": (lambda limit: chain(*[1] * 5), "max_nodes is 4, and its proposer made a tree of 5 nodes"),
    "more nodes, a tree": (lambda limit: TokenTree([1] * 9, [-1] * 9), "max_nodes is 4, and its proposer made a tree of 9 nodes"),
    "deeper than there is room": (lambda limit: chain(*[1] * (limit + 1)), "room for a path of 3 tokens, .* tree is 4 deep"),
    "an id that is none": (lambda limit: chain(V), r"a drafted id must lie in \[0, 11\), got \[11\]"),
    "an id below 0": (lambda limit: TokenTree([1, -1], [-1, -1]), r"in \[0, 11\), got \[1, -1\]"),
    "an id on a pad": (lambda limit: TokenTree([1, 99], [-1, -2]), r"in \[0, 11\), got \[1, 99\]"),
    "an id that is no whole number": (lambda limit: chain(1.5), "tokens must be whole numbers, got torch.float32"),
    "q of another vocabulary": (lambda limit: chain(1, q=torch.ones(1, 7) / 7), "q is over 7 tokens, and the target's vocabulary has 11"),
    "q of another vocabulary, a tree": (lambda limit: TokenTree([1, 2], [-1, -1], torch.ones(3, 12) / 12), "q is over 12 tokens"),
    "q with a row too few": (lambda limit: TokenTree([1, 2], [-1, -1], torch.ones(2, V) / V), r"q must be \(..., N \+ 1, V\) with N = 2"),
    "a parent behind its child": (lambda limit: TokenTree([1, 2], [1, -1]), r"parents\[0\] must be -1 or an earlier node, got 1"),
    "a batch of trees": (lambda limit: TokenTree([[1]], [-1]), "a TokenTree without batch axes, got"),
    "no tree": (lambda limit: [1, 2], r"must return a TokenTree without batch axes, got \[1, 2\]"),
}


@pytest.mark.parametrize("width", [None, 16])
@pytest.mark.parametrize("name", BROKEN)
def test_a_proposer_that_breaks_its_promises_is_named_before_the_target_runs(target, name, width, monkeypatch):
    make, message = BROKEN[name]
    request = decoding.Request.begin(target, PROMPT[:1], 4, Proposing(make), Sampling(), Uniforms(0))
    cache = target.new_cache(32)
    before = cache.keys.clone()
    monkeypatch.setattr(Transformer, "forward", lambda *_, **__: pytest.fail("the target ran before the error"))
    with pytest.raises(ValueError, match=message) as error:  # a prompt of one token: there is nothing to run before the tree
        next(rounds(target, cache, [request], width=width))
    assert not isinstance(error.value, CacheFull), "the drafter is at fault, and not the size of the cache"
    assert request.committed == PROMPT[:1]
    assert cache.length == 0
    assert torch.equal(cache.keys, before)


def test_the_error_names_the_tree_later_in_a_text_too(target):
    steps = stream(target, PROMPT, Proposing(lambda limit: chain(*[1] * (4 if limit > 5 else 5))), Sampling(0), 12)
    with pytest.raises(ValueError, match="a tree of 5 nodes"):
        list(steps)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_keeps_its_promises(target, name, monkeypatch):
    """The checks see every tree of a whole text, down to its last tokens, and find nothing. And they are asked each time."""
    seen, check = [], decoding.check_proposal
    monkeypatch.setattr(decoding, "check_proposal", lambda *arguments: seen.append(1) or check(*arguments))
    run = generate(target, PROMPT, DRAFTERS[name](target), max_new_tokens=12)
    assert len(seen) >= run.stats.forwards - 1 > 0


# Numbers that are none.


BAD_ROWS = {
    "all NaN": torch.full((V,), torch.nan), "one NaN": torch.zeros(V).index_fill(0, torch.tensor([3]), torch.nan),
    "all -inf": torch.full((V,), -torch.inf), "one +inf": torch.zeros(V).index_fill(0, torch.tensor([3]), torch.inf),
}  # fmt: skip


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_without_a_distribution_give_a_token_that_there_is_not(name, sampling):
    """This is how the host hears of them without asking: V is no token, wherever in a tree or a chain the row decides."""
    u = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    p = sampling.probabilities(BAD_ROWS[name])
    assert inverse_cdf(p.expand(3, V), u).tolist() == [V] * 3
    good = torch.eye(V)[2]
    rows = torch.stack([good, p, good])  # the first child is accepted; behind it stands the bad row
    for q in (None, torch.stack([good, good])):
        verdict = verify_chain(rows, q, torch.tensor([2, 2]), torch.full((3,), 0.5))
        assert (verdict.count.item(), verdict.next_token.item()) == (1, V)
    for q in (None, torch.stack([good, good, good])):
        verdict = verify_tree(rows, TokenTree([2, 2], [-1, 0], q), torch.full((3,), 0.5))
        assert (verdict.count.item(), verdict.next_token.item()) == (1, V)


@pytest.mark.parametrize("drawn", [False, True], ids=["point masses", "drawn"])
def test_a_bad_row_that_nobody_comes_to_changes_nothing(drawn):
    """Behind a node that is not accepted the target may say what it likes: plain decoding would not have asked."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        p, u = torch.rand(5, V, generator=generator).softmax(-1), torch.rand(5, generator=generator, dtype=torch.float64)
        q = torch.rand(5, V, generator=generator).softmax(-1) if drawn else None
        tree = TokenTree([1, 2, 1, 3], [-1, -1, 0, 1], q)
        verdict = verify_tree(p, tree, u)
        reached = {0, *(node + 1 for node in verdict.path.tolist() if node >= 0)}
        for row in {0, 1, 2, 3, 4} - reached:
            bad = p.clone()
            bad[row] = torch.nan
            again = verify_tree(bad, tree, u)
            assert (again.path.tolist(), again.next_token.item()) == (verdict.path.tolist(), verdict.next_token.item())


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("name", ["none", *DRAFTERS])
def test_a_target_of_nan_says_so_and_commits_nothing(target, name, sampling):
    drafter = DRAFTERS[name](tiny_model(1, V, scale=1.5)) if name != "none" else None
    target.norm.weight.data.fill_(torch.nan)  # corrupt weights
    with pytest.raises(ValueError, match=r"behind 5 tokens the target's logits have a NaN or a \+inf, or are all -inf"):
        generate(target, PROMPT, drafter, sampling, 8)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_bad_row_is_named_where_it_stands(target, sampling, monkeypatch):
    """The rows before it come out as ever; in a batch, and of a fixed width, too."""
    expected = generate(target, PROMPT, None, sampling, 8).tokens
    forward = Transformer.forward

    def sick(self, tokens, cache, *arguments, **options):
        before = cache.length
        output = forward(self, tokens, cache, *arguments, **options)
        if before == len(PROMPT) + 2:
            output.logits.fill_(-torch.inf)
        return output

    monkeypatch.setattr(Transformer, "forward", sick)
    for options in ({}, {"width": 4}):
        seen = []
        with pytest.raises(ValueError, match="behind 8 tokens"):
            seen.extend(step.tokens[0] for step in stream(target, PROMPT, None, sampling, 8, **options))
        assert seen == expected[:3]
    with pytest.raises(ValueError, match="behind 8 tokens"):
        list(stream(target, [PROMPT, PROMPT[:2]], None, sampling, 8))


def test_single_logits_may_be_minus_infinity(target):
    """A mask of the vocabulary is no error: such a token is never said."""
    head = target.head.forward
    target.head.forward = lambda x: head(x).index_fill(-1, torch.arange(3, V), -torch.inf)
    for sampling in SAMPLINGS.values():
        assert set(generate(target, PROMPT, PromptLookup(1, 3, candidates=2), sampling, 20).tokens) <= {0, 1, 2}


def sicken(drafter):
    """NaN in every weight that the drafter has of its own."""
    for one in [drafter, *(getattr(drafter, part) for part in ("first", "second") if hasattr(drafter, part))]:
        for own in (getattr(one, part, None) for part in ("model", "heads", "head")):
            for weight in own.parameters() if own is not None else ():
                weight.data = torch.full_like(weight, torch.nan)  # the target's weights, where they are shared, stay as they are
    return drafter


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("name", [name for name in DRAFTERS if name not in ("itself", "truncated")])
def test_a_draft_of_nan_costs_acceptance_and_never_the_text(target, name, sampling):
    """A drafter's numbers are not trusted anywhere: a q of NaN rejects whatever was drafted from it. Drawn or not, the text of a
    drafter that is always rejected in the first place is that of plain decoding where nothing is left to chance."""
    run = generate(target, PROMPT, sicken(DRAFTERS[name](target)), sampling, 16)
    assert len(run.tokens) == 16
    assert all(0 <= token < V for token in run.tokens)
    if sampling.greedy:
        assert run.tokens == generate(target, PROMPT, None, sampling, 16).tokens


def test_a_q_of_nan_rejects_and_leaves_p(target):
    p, nan = torch.rand(3, V).softmax(-1), torch.full((3, V), torch.nan)
    for u in torch.rand(50, 3, dtype=torch.float64):
        for verdict in (
            verify_chain(p[:2], nan[:1], torch.tensor([4]), u[:2]),
            verify_tree(p, TokenTree([4, 5], [-1, -1], nan), torch.cat([u[:1], u[:2]])),
        ):
            assert verdict.count == 0
            assert verdict.next_token == inverse_cdf(p[0], u[1])


# Heads on disk.


HEADS = {
    "medusa": (MedusaHeads, medusa), "eagle-1": (EagleHead, eagle_1), "eagle-3": (EagleHead, eagle_3),
}  # fmt: skip


def rewrite(path, tensors=None, **about):
    with safe_open(path, "pt") as file:
        metadata, state = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    save_file(state | (tensors or {}), path, metadata | about)


def cut_in_the_header(path):
    path.write_bytes(path.read_bytes()[:20])


def a_folder(path):
    path.unlink()
    path.mkdir()


def without_metadata(path):
    save_file({"w": torch.zeros(1)}, path)


DAMAGE = {
    "missing": (Path.unlink, "does not exist"), "a folder": (a_folder, "is a folder; trained heads are one .safetensors file"),
    "empty": (lambda p: p.write_bytes(b""), "is damaged, or no safetensors file"),
    "cut at its end": (lambda p: p.write_bytes(p.read_bytes()[:-8]), "is damaged, or no safetensors file"),
    "cut in its header": (cut_in_the_header, "is damaged, or no safetensors file"),
    "another format": (lambda p: p.write_bytes(b"GGUF" * 100), "is damaged, or no safetensors file"),
    "safetensors of somebody else": (without_metadata, "its kind is None, expected"),
    "of another kind": (lambda p: rewrite(p, kind="other"), "its kind is 'other', expected '(medusa|eagle)'"),
    "of a later format": (lambda p: rewrite(p, format="2"), "its format is '2', expected '1'"),
    "a config that is none": (lambda p: rewrite(p, config="{"), "its config cannot be read"),
    "a config that says too little": (lambda p: rewrite(p, config="{}"), "its config cannot be read"),
    "a config that is a list": (lambda p: rewrite(p, config="[1]"), "its config cannot be read"),
    "a tensor too many": (lambda p: rewrite(p, {"more": torch.zeros(1)}), r"lacks the tensors \[\] and has \['more'\]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_heads(idle, kind, name, tmp_path):
    (loader, make), (damage, message), path = HEADS[kind], DAMAGE[name], tmp_path / "heads.safetensors"
    make(idle).save(path)
    damage(path)
    with pytest.raises(CheckpointError, match=message) as error:
        loader.load(path, idle)
    assert str(path) in str(error.value), "the message must say which file"


@pytest.mark.parametrize("kind", HEADS)
def test_a_weight_that_is_not_finite_or_lacks_a_row(idle, kind, tmp_path):
    (loader, make), path = HEADS[kind], tmp_path / "heads.safetensors"
    head = make(idle)
    name, weight = next(iter(head.named_parameters()))
    for damaged, message in (
        (torch.full_like(weight, torch.inf), f"{name} has numbers that are not finite"),
        (weight[:-1].clone(), f"{name} must be "),
        (weight.long(), f"{name} has the dtype torch.int64"),
    ):
        head.save(path)
        rewrite(path, {name: damaged})
        with pytest.raises(CheckpointError, match=message):
            loader.load(path, idle)


@pytest.mark.parametrize("kind", HEADS)
def test_heads_for_another_target(idle, kind, tmp_path):
    (loader, make), path = HEADS[kind], tmp_path / "heads.safetensors"
    make(idle).save(path)
    for change, message in (
        ({"vocab_size": 7}, "vocab_size = 11, this one has 7"), ({"hidden_size": 8}, "hidden_size = 16, this one has 8"),
    ):  # fmt: skip
        with pytest.raises(CheckpointError, match=message):
            loader.load(path, random_model(Config(**SHAPE | change), 0, torch.float64))


def test_heads_of_one_kind_are_no_heads_of_the_other(idle, tmp_path):
    medusa(idle).save(tmp_path / "medusa")
    eagle_3(idle).save(tmp_path / "eagle")
    with pytest.raises(CheckpointError, match="kind is 'medusa', expected 'eagle'"):
        EagleHead.load(tmp_path / "medusa", idle)
    with pytest.raises(CheckpointError, match="kind is 'eagle', expected 'medusa'"):
        MedusaHeads.load(tmp_path / "eagle", idle)


def test_a_config_with_an_impossible_size(idle, tmp_path):
    path = tmp_path / "heads.safetensors"
    for head, change in ((medusa(idle), {"hidden_size": 0}), (eagle_1(idle), {"target": SHAPE | {"layers": -1}})):
        head.save(path)
        with safe_open(path, "pt") as file:
            config = json.loads(file.metadata()["config"])
        rewrite(path, config=json.dumps(config | change))
        with pytest.raises(CheckpointError, match=r"its config cannot be read: (hidden_size|layers) must be a whole number >= 1"):
            type(head).load(path, idle)


@pytest.mark.parametrize("name", ["nothing.gguf", "nothing", "cut.gguf", "."])
def test_models_that_are_not_there(name, tmp_path):
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03")
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        load_model(tmp_path / name)


# A model and its cache.


@pytest.mark.parametrize(("options", "message"), [
    ({"mask": torch.ones(2, dtype=torch.bool)}, r"mask must be \(2, M\) or \(1, 2, M\) with 2 <= M <= 5, got \(2,\)"),
    ({"mask": torch.ones(3, 2, dtype=torch.bool)}, r"got \(3, 2\)"), ({"mask": torch.ones(2, 1, dtype=torch.bool)}, r"got \(2, 1\)"),
    ({"mask": torch.ones(2, 6, dtype=torch.bool)}, r"2 <= M <= 5, got \(2, 6\)"),
    ({"mask": torch.ones(3, 2, 2, dtype=torch.bool)}, r"got \(3, 2, 2\)"),
    ({"mask": torch.ones(1, 1, 2, 2, dtype=torch.bool)}, r"got \(1, 1, 2, 2\)"),
    ({"mask": torch.ones(2, 2)}, "mask must be bool, .* got torch.float32"),
    ({"positions": torch.arange(3)}, r"positions must be \(2,\) or \(1, 2\), got \(3,\)"),
    ({"positions": torch.zeros(2, 2, dtype=torch.long)}, r"got \(2, 2\)"),
    ({"rows": -1}, r"rows must lie in \[0, 2\], got -1"), ({"rows": 3}, r"rows must lie in \[0, 2\], got 3"),
    ({"layers": (2,)}, r"layers must be numbers in \[0, 2\), got \(2,\)"), ({"layers": (-1,)}, r"got \(-1,\)"),
    ({"tokens": torch.tensor([[1.0]])}, r"whole numbers, got \(1, 1\) of torch.float32"), ({"tokens": torch.tensor([1])}, r"got \(1,\)"),
    ({"tokens": torch.ones(2, 1, dtype=torch.long)}, r"tokens must be \(1, T\) .* got \(2, 1\)"),
    ({"tokens": torch.ones(1, 6, dtype=torch.long)}, "holds 8 slots, 3 are filled, and 6 more were asked for"),
])  # fmt: skip
def test_a_forward_that_does_not_fit_leaves_the_cache_alone(target, options, message):
    cache = target.new_cache(8)
    target(torch.tensor([[1, 2, 3]]), cache)
    before = cache.keys.clone(), cache.values.clone()
    with pytest.raises(ValueError, match=message):
        target(**{"tokens": torch.tensor([[1, 2]]), "cache": cache} | options)
    assert cache.length == 3
    assert torch.equal(cache.keys, before[0])
    assert torch.equal(cache.values, before[1])


@pytest.mark.parametrize("other", [
    tiny_model(0, V, layers=1), tiny_model(0, V, layers=3), tiny_model(0, V, dtype=torch.float32),
    random_model(Config(**SHAPE | {"kv_heads": 1}), 0, torch.float64), random_model(Config(**SHAPE | {"head_dim": 8}), 0, torch.float64),
])  # fmt: skip
def test_the_cache_of_another_model_is_refused(target, other):
    """One of more layers used to be filled in part, and its length stayed 0."""
    cache = other.new_cache(8)
    with pytest.raises(ValueError, match=r"the cache is of \d layers, .* the model has 2 layers, 2 heads of 4 and torch.float64"):
        target(torch.tensor([[1]]), cache)
    assert not cache.keys.any()


def test_a_cache_that_is_too_small_says_so_before_the_forward(target):
    cache, request = target.new_cache(6), decoding.Request(list(PROMPT), 30, None, Uniforms(0))
    steps = rounds(target, cache, [request])
    next(steps)
    next(steps)
    before = cache.keys.clone()
    with pytest.raises(CacheFull, match="holds 6 slots, 6 are filled, and 1 more"):
        next(steps)
    assert torch.equal(cache.keys, before)
    assert len(request.committed) == 7


# Sizes.


@pytest.mark.parametrize("value", [0, -1, 2.0, None, True, "4"], ids=repr)
@pytest.mark.parametrize("name", SHAPE)
def test_every_size_of_a_model_is_checked(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a whole number >= 1, got {value!r}"):
        Config(**SHAPE | {name: value})


@pytest.mark.parametrize("make", [
    lambda t, n: KVCache(t.config, 1, n), lambda t, n: KVCache(t.config, n, 1), lambda t, n: t.new_cache(n), lambda t, n: t.new_cache(4, n),
    lambda t, n: t.truncated(n), lambda t, n: DraftModel(t, n - 1), lambda t, n: PromptLookup(n, 2), lambda t, n: PromptLookup(2, n - 1),
    lambda t, n: PromptLookup(2, 2, n), lambda t, n: PromptLookup(2, 2, candidates=n), lambda t, n: Lookahead(window=n),
    lambda t, n: Lookahead(ngram=n + 1), lambda t, n: Lookahead(pool=n - 1), lambda t, n: MedusaHeads.random(t, heads=n),
    lambda t, n: MedusaHeads.random(t, blocks=n), lambda t, n: MedusaConfig(n, 16), lambda t, n: MedusaConfig(V, n),
    lambda t, n: Eagle(eagle_1(t), n, 2, 2), lambda t, n: Eagle(eagle_1(t), 2, n, 2), lambda t, n: Eagle(eagle_1(t), 2, 2, n),
    lambda t, n: full_tree([2, n]), lambda t, n: Config(**SHAPE, rope_theta=n), lambda t, n: Config(**SHAPE, norm_eps=n),
    lambda t, n: Sampling(top_k=n), lambda t, n: Sampling(top_p=n), lambda t, n: Sampling(temperature=n - 1),
    lambda t, n: Sampling(min_p=n - 1),
])  # fmt: skip
@pytest.mark.parametrize("value", [0, -3])
def test_sizes_of_zero_and_below(idle, make, value):
    with pytest.raises(ValueError, match=rf"(?<!\d){value}|{value - 1}|{value + 1}"):
        make(idle, value)


@pytest.mark.parametrize("value", [3.0, 2.5, "3", True, [3]], ids=repr)
@pytest.mark.parametrize("make", [
    lambda t, x: Sampling(top_k=x), lambda t, x: DraftModel(t, x), lambda t, x: PromptLookup(x), lambda t, x: PromptLookup(3, x),
    lambda t, x: PromptLookup(3, 8, x), lambda t, x: PromptLookup(candidates=x), lambda t, x: Lookahead(window=x),
    lambda t, x: Lookahead(ngram=x), lambda t, x: Lookahead(pool=x), lambda t, x: Eagle(eagle_1(t), x, 2, 2),
    lambda t, x: Eagle(eagle_1(t), 2, x, 2), lambda t, x: Eagle(eagle_1(t), 2, 2, x), lambda t, x: full_tree([2, x]),
    lambda t, x: MedusaConfig(V, 16, x), lambda t, x: MedusaConfig(V, 16, 2, x), lambda t, x: KVCache(t.config, x, 4),
    lambda t, x: KVCache(t.config, 1, x), lambda t, x: t.new_cache(x), lambda t, x: t.truncated(x), lambda t, x: Uniforms(x),
])  # fmt: skip
def test_what_counts_is_a_whole_number(idle, make, value):
    """A number that is none used to pass, and to fail later, in a tensor's shape or a slice."""
    with pytest.raises(ValueError, match=rf"must be a whole number.*, got {re.escape(repr(value))}"):
        make(idle, value)


def test_numpys_whole_numbers_are_whole(target):
    three = np.int64(3)
    assert generate(target, PROMPT, PromptLookup(three, three), Sampling(top_k=three), three, seed=three).stats.emitted == 3


@pytest.mark.parametrize("value", ["1", None, torch.nan, torch.inf, -0.1, [1.0], True], ids=repr)
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p"])
def test_the_numbers_of_sampling_are_numbers(name, value):
    if value is None and name != "temperature":
        return
    with pytest.raises(ValueError, match=f"{name} must be a .*number.*, got {re.escape(repr(value))}"):
        Sampling(**{name: value})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-46, 1e-45, 1e-40, 1e-38])
def test_a_temperature_that_float32_cannot_divide_by_is_greedy(temperature, dtype, target):
    logits = torch.tensor([[0.5, 2.0, 2.0, -torch.inf], [-1.0, -5.0, 0.0, 0.0]], dtype=dtype)
    assert torch.equal(Sampling(temperature).probabilities(logits), Sampling(0).probabilities(logits))
    plain, drafter = generate(target, PROMPT, None, Sampling(0), 8), DraftModel(target, 3)
    assert generate(target, PROMPT, drafter, Sampling(temperature), 8).tokens == plain.tokens


@pytest.mark.parametrize("temperature", [1.2e-38, 1e-30, 1e30, 1e38, 1e39, 1e300])
def test_no_temperature_makes_a_nan(temperature):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        p = Sampling(temperature).probabilities(torch.tensor([0.5, 2.0, 1.0, -torch.inf], dtype=dtype))
        expected = [0, 1, 0, 0] if temperature < 1 else [1 / 3, 1 / 3, 1 / 3, 0]
        torch.testing.assert_close(p.float(), torch.tensor(expected, dtype=torch.float32))


NO_MODELS = {
    "a name": "smollm2-135m", "a directory": Path("models/llama"), "nothing": None, "a class": Transformer,
    "a module": torch.nn.Linear(2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_MODELS)
def test_what_is_no_model_is_named(name, idle):
    model = NO_MODELS[name]
    for make, role in (
        (lambda: stream(model, PROMPT), "target"), (lambda: generate(model, "text"), "target"), (lambda: DraftModel(model, 2), "draft"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"the {role} must be a model, such as load_model returns, got .* without .*new_cache|config"):
            make()


@pytest.mark.parametrize("make", [
    lambda x: Medusa(x, [-1]), lambda x: Eagle(x, 2, 2, 2), lambda x: Eagle(x, tree=[-1]),
])  # fmt: skip
@pytest.mark.parametrize("value", ["heads.safetensors", None, EagleHead, MedusaHeads], ids=repr)
def test_what_is_no_head_is_named(make, value):
    with pytest.raises(ValueError, match=r"(must be an EagleHead, as EagleHead\.load|must be MedusaHeads, as MedusaHeads\.load) returns"):
        make(value)


@pytest.mark.parametrize("value", ["float33", "int8", torch.int8, "Tensor", 32, ""], ids=repr)
def test_dtypes_that_are_none(idle, value, monkeypatch):
    monkeypatch.setattr(checkpoints, "_located", lambda _: pytest.fail("the model was looked for before the error"))
    for make in (lambda: load_model("smollm2-135m", dtype=value), lambda: KVCache(idle.config, 1, 4, dtype=value)):
        with pytest.raises(ValueError, match=r"dtype must be one of torch\.bfloat16, .* or its name, got "):
            make()


def test_dtypes_by_name(idle):
    for name in ("float32", "torch.float32"):
        assert KVCache(idle.config, 1, 4, dtype=name).keys.dtype == torch.float32
        assert load_model("shakespeare-gpt", dtype=name).dtype == torch.float32


@pytest.mark.parametrize("value", ["smollm2-135m", None, {"layers": 2}], ids=repr)
def test_a_cache_of_no_config(value):
    with pytest.raises(ValueError, match=r"config must be a Config, such as model\.config, got"):
        KVCache(value, 1, 4)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: TokenTree("ab", [-1, -1]), "tokens must be whole numbers, got 'ab'"), (lambda: TokenTree(None, []), "got None"),
    (lambda: TokenTree([1], ["a"]), r"parents must be whole numbers, got \['a'\]"),
    (lambda: TokenTree([[1], [1, 2]], [-1]), "tokens must be"),
    (lambda: TokenTree([True], [-1]), r"whole numbers, got torch\.bool"), (lambda: TokenTree.chain("ab"), "got 'ab'"),
    (lambda: TokenTree.chain(5), r"tokens must be \(..., K\), got shape \(\)"),
    (lambda: TokenTree.chain([1], [[0.5, 0.5]]), "q must be a tensor"),
    (lambda: TokenTree([1], [-1], [[1.0]]), "q must be a tensor"),
    (lambda: TokenTree.chain([1], torch.ones(3)), r"q must be \(..., N \+ 1, V\)"),
    (lambda: Shape([-1, 0.0]), "a list of parents, whole numbers"), (lambda: Shape(3), "a list of parents, whole numbers, got 3"),
])  # fmt: skip
def test_trees_of_wrong_type(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("make", "message"), [
    (lambda t: DraftModel(t, tree=[-1] * 12), "a node of the tree has 12 children, and the vocabulary has 11 tokens"),
    (lambda t: Medusa(medusa(t), [-1] * 12), "a node of the tree has 12 children, and the vocabulary has 11 tokens"),
    (lambda t: Medusa(medusa(t), full_tree([1] * 4)), "a tree of depth 4 needs as many heads, got 3"),
    (lambda t: Eagle(eagle_3(t), tree=[-1] * 7), "a node gets 7 children, and the head scores 6 tokens"),
    (lambda t: Eagle(eagle_1(t), 2, 12, 4), "a node gets 12 children, and the head scores 11 tokens"),
    (lambda t: DraftModel(t, siblings="some"), r"siblings must be one of \('without_replacement', 'iid'\), got 'some'"),
    (lambda t: DraftModel(t, tree=[-1, -2]), r"must be >= -1, got \[-1, -2\]"), (lambda t: Shape([0]), "earlier node, got 0"),
    (lambda t: Medusa(medusa(t), [-1, 0, -1]), r"level by level, got parents \[-1, 0, -1\]"),
    (lambda t: Eagle(eagle_1(t), tree=[-1, 1]), r"parents\[1\] must be -1 or an earlier node, got 1"),
    (lambda t: TokenTree([1.0], [-1]), "tokens must be whole numbers, got torch.float32"),
    (lambda t: TokenTree([1], [-1.0]), "parents must be whole numbers, got torch.float32"),
    (lambda t: TokenTree([1], [-1], siblings="some"), "siblings must be .*, got 'some'"),
])  # fmt: skip
def test_trees_that_cannot_be_drafted(idle, make, message):
    with pytest.raises(ValueError, match=message):
        make(idle)
