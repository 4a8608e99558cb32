"""Medusa: candidates against a loop over the formula, texts against plain decoding, errors, and the stored heads."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tiny import tiny_model

from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import Medusa, MedusaHeads
from specdec.drafters.base import Outcome
from specdec.models.errors import CheckpointError
from specdec.tree import TokenTree, full_tree
from specdec.uniforms import Uniforms

GREEDY = Sampling(0)
PROMPT = [1, 2, 3, 1, 2]
TREES = {"full": full_tree([3, 2, 1]), "chain": full_tree([1, 1, 1]), "sparse": [-1, -1, -1, 0, 0, 2, 3, 3, 5], "flat": [-1] * 5}


@pytest.fixture(scope="module")
def target():
    return tiny_model(1, vocab_size=11, scale=1.5)


@pytest.fixture(scope="module")
def heads(target):
    return MedusaHeads.random(target, heads=3, blocks=2, seed=3)


@pytest.fixture(scope="module")
def plain(target):
    return {len(prompt): generate(target, prompt, None, GREEDY, max_new_tokens=100).tokens for prompt in (PROMPT, [4])}


def slow_candidates(heads, target, committed, tree):
    """Node by node, from the formula h + W h · sigmoid(W h), on the features of a fresh prefill."""
    h = target(torch.tensor([committed[:-1]]), target.new_cache()).hidden[0, -1]
    ranked = []
    for k in range(3):
        x = h
        for block in heads.blocks[k]:
            inner = [sum(float(w * y) for w, y in zip(row, x, strict=True)) for row in block.linear.weight]
            x = torch.stack([y + z / (1 + torch.tensor(-z, dtype=x.dtype).exp()) for y, z in zip(x, inner, strict=True)])
        weight = heads.lm_heads[k].weight if heads.config.own_head else target.head.weight
        logits = [float((row * x).sum()) for row in weight]
        ranked.append(sorted(range(11), key=lambda token: -logits[token]))
    depths, tokens = [], []
    for node, parent in enumerate(tree):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        tokens.append(ranked[depths[-1]][tree[:node].count(parent)])
    return tokens


class Watched:
    """A drafter that calls back after every tree."""

    def __init__(self, drafter, seen):
        self.drafter, self.seen, self.max_nodes = drafter, seen, drafter.max_nodes

    def start(self, *arguments):
        self.proposer = self.drafter.start(*arguments)
        self.observe = self.proposer.observe
        return self

    def propose(self, committed, limit, uniforms):
        tree = self.proposer.propose(committed, limit, uniforms)
        self.seen(list(committed), limit, tree)
        return tree


@pytest.mark.parametrize("own_head", [False, True])
@pytest.mark.parametrize("name", TREES)
@torch.inference_mode()
def test_candidates_equal_a_loop(target, name, own_head):
    heads, shape = MedusaHeads.random(target, blocks=2, own_head=own_head, seed=3), TREES[name]
    checked = []

    def check(committed, limit, tree):
        expected = slow_candidates(heads, target, committed, shape)[: len(tree)]
        assert tree.tokens.tolist() == expected
        assert tree.parents.tolist() == shape[: len(tree)]
        assert tree.q is None
        assert tree.depth == min(limit, TokenTree([0] * len(shape), shape).depth)
        checked.append(limit)

    generate(target, PROMPT, Watched(Medusa(heads, shape), check), Sampling(), max_new_tokens=15)
    assert checked[-1] <= 3, "the end of the budget must cut a tree"


@pytest.mark.parametrize("name", TREES)
def test_greedy_text_is_that_of_plain_decoding(target, heads, plain, name):
    for prompt, length in ((PROMPT, 100), ([4], 30)):
        drafted = generate(target, prompt, Medusa(heads, TREES[name]), GREEDY, max_new_tokens=length)
        assert drafted.tokens == plain[len(prompt)][:length]
        assert drafted.stats.drafted > 0
    for budget in range(1, 6):
        drafted = generate(target, PROMPT, Medusa(heads, TREES[name]), GREEDY, max_new_tokens=budget)
        assert drafted.tokens == plain[len(PROMPT)][:budget]


def test_some_candidates_are_accepted_and_some_are_not(target, heads):
    """Else the texts above would say little."""
    stats = generate(target, PROMPT, Medusa(heads, TREES["full"]), GREEDY, max_new_tokens=60).stats
    assert stats.forwards < 50
    assert 0 < stats.accepted < stats.drafted


def test_a_batch_decodes_as_its_rows(target, heads):
    prompts, drafter = [PROMPT, [4], [9, 8]], Medusa(heads, TREES["full"])
    together = generate(target, prompts, drafter, max_new_tokens=20)
    assert [one.tokens for one in together] == [generate(target, text, drafter, max_new_tokens=20).tokens for text in prompts]


def test_nothing_is_proposed_before_anything_was_seen(target, heads):
    proposer = Medusa(heads, TREES["full"]).start(target, GREEDY, 20)
    assert len(proposer.propose([4], 10, Uniforms(0))) == 0
    assert len(Medusa(heads, []).start(target, GREEDY, 20).propose([4], 10, Uniforms(0))) == 0


@pytest.mark.parametrize("name", TREES)
def test_propose_asks_the_device_for_nothing(name):
    """On the meta device a tensor has no values: every copy to the host is an error."""
    target = tiny_model(1, vocab_size=11).to("meta")
    heads = MedusaHeads.random(target)
    proposer = Medusa(heads, TREES[name]).start(target, GREEDY, 20)
    proposer.observe(Outcome([], TokenTree.empty("meta"), torch.empty(0, 11), torch.empty(4, 16, dtype=torch.float64, device="meta")))
    tree = proposer.propose(PROMPT, 2, Uniforms(0))
    assert tree.tokens.device.type == "meta"
    assert len(tree) == {"full": 9, "chain": 2, "sparse": 6, "flat": 5}[name]


@pytest.mark.parametrize(("make", "message"), [
    (lambda t, h: Medusa(h, full_tree([1] * 4)), "a tree of depth 4 needs as many heads, got 3"),
    (lambda t, h: Medusa(h, [-1] * 12), "12 children, and the vocabulary has 11"),
    (lambda t, h: Medusa(h, [-1, 0, -1]), "level by level"),
    (lambda t, h: MedusaHeads.random(t, heads=0), "heads must be a whole number >= 1, got 0"),
    (lambda t, h: MedusaHeads.random(t, blocks=0), "blocks must be a whole number >= 1, got 0"),
    (lambda t, h: Medusa(h, [-1]).start(tiny_model(0, vocab_size=7), GREEDY, 9), "vocab_size = 11, this one has 7"),
    (lambda t, h: Medusa(h, [-1]).start(tiny_model(0, vocab_size=11, dtype=torch.float32), GREEDY, 9), "float64 on cpu, .*float32"),
])  # fmt: skip
def test_errors(target, heads, make, message):
    with pytest.raises(ValueError, match=message):
        make(target, heads)


@pytest.mark.parametrize("own_head", [False, True])
def test_untrained_heads_say_what_the_target_says(target, own_head):
    heads, hidden = MedusaHeads.untrained(target, own_head=own_head), torch.randn(5, 16, dtype=torch.float64)
    for k in range(3):
        assert torch.equal(heads(target, hidden)[:, k], target.head(hidden))
    assert heads(target, hidden, 2).shape == (5, 2, 11)


def test_a_shared_head_is_not_stored(target, heads, tmp_path):
    heads.save(tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert all(name.startswith("blocks.") for name in file.keys())  # noqa: SIM118
        about = file.metadata()
    assert (about["kind"], about["version"], about["format"]) == ("medusa", "1", "1")
    assert json.loads(about["config"]) == {"vocab_size": 11, "hidden_size": 16, "heads": 3, "blocks": 2, "own_head": False}
    assert not any(parameter is target.head.weight for parameter in heads.parameters())


@pytest.mark.parametrize("own_head", [False, True])
def test_stored_heads_are_the_same_heads(target, own_head, tmp_path):
    heads = MedusaHeads.random(target, heads=2, own_head=own_head, seed=5)
    heads.save(tmp_path / "new" / "heads.safetensors")
    again = MedusaHeads.load(tmp_path / "new" / "heads.safetensors", target)
    assert again.config == heads.config
    assert all(torch.equal(a, b) for a, b in zip(heads.state_dict().values(), again.state_dict().values(), strict=True))
    single = MedusaHeads.load(tmp_path / "new" / "heads.safetensors", tiny_model(1, vocab_size=11, dtype=torch.float32))
    assert {parameter.dtype for parameter in single.parameters()} == {torch.float32}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["heads.safetensors"], "nothing temporary stays behind"


def test_a_failed_save_leaves_the_old_file(target, heads, tmp_path, monkeypatch):
    path = tmp_path / "heads.safetensors"
    heads.save(path)
    before = path.read_bytes()

    def break_off(tensors, part, metadata):
        part.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr("specdec.drafters.heads.save_file", break_off)
    with pytest.raises(OSError, match="no space left"):
        MedusaHeads.random(target, seed=9).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def rewrite(path, tensors=None, **about):
    with safe_open(path, "pt") as file:
        metadata, state = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    save_file(state | (tensors or {}), path, metadata | about)


NAME = "blocks.0.0.linear.weight"


@pytest.mark.parametrize(("damage", "message"), [
    (lambda p: p.unlink(), "does not exist"),
    (lambda p: p.write_bytes(p.read_bytes()[:-8]), "is damaged"),
    (lambda p: p.write_bytes(b""), "is damaged"),
    (lambda p: rewrite(p, kind="eagle"), "kind is 'eagle', expected 'medusa'"),
    (lambda p: rewrite(p, format="2"), "format is '2', expected '1'"),
    (lambda p: rewrite(p, version="2"), "version is '2', and its config says 1"),
    (lambda p: rewrite(p, config="{"), "config cannot be read"),
    (lambda p: rewrite(p, config='{"vocab_size": 11}'), "config cannot be read"),
    (lambda p: rewrite(p, {"more": torch.zeros(1)}), r"lacks the tensors \[\] and has \['more'\]"),
    (lambda p: rewrite(p, {NAME: torch.zeros(3, 16)}), rf"{NAME} must be \(16, 16\), got \(3, 16\)"),
    (lambda p: rewrite(p, {NAME: torch.zeros(16, 16, dtype=torch.int64)}), f"{NAME} has the dtype torch.int64"),
    (lambda p: rewrite(p, {NAME: torch.full((16, 16), float("nan"))}), f"{NAME} has numbers that are not finite"),
])  # fmt: skip
def test_what_cannot_be_loaded(target, heads, damage, message, tmp_path):
    path = tmp_path / "heads.safetensors"
    heads.save(path)
    damage(path)
    with pytest.raises(CheckpointError, match=message) as error:
        MedusaHeads.load(path, target)
    assert str(path) in str(error.value)


def test_heads_of_another_target_are_refused(heads, tmp_path):
    heads.save(tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="vocab_size = 11, this one has 7"):
        MedusaHeads.load(tmp_path / "a.safetensors", tiny_model(0, vocab_size=7))
