"""DistilledDraft and heads that share the target's LM head: what they compute, what a file holds, what cannot be loaded."""

import json
from dataclasses import asdict

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny import law_of_round, tiny_model

from specdec.config import Config
from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import DraftModel, Eagle, EagleConfig, EagleHead
from specdec.drafters.distilled import DistilledConfig, DistilledDraft
from specdec.drafters.shared_head import SharedRows, head_rows, plain_weight
from specdec.law import law_distance
from specdec.models.errors import CheckpointError
from specdec.models.linear import pack_linears
from specdec.tree import full_tree

V, SOME, PROMPT = 11, [1, 3, 4, 5, 8, 9], [1, 2, 3, 1, 2]
GREEDY = Sampling(0)


@pytest.fixture(scope="module")
def target():
    return tiny_model(1, V, scale=1.5)


def tensors(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("ids", [None, SOME])
def test_greedy_text_is_that_of_plain_decoding(target, ids):
    draft = DistilledDraft.copied(target, [0], ids).requires_grad_(False).beside(target)
    plain = generate(target, PROMPT, None, GREEDY, max_new_tokens=40)
    for drafter in (DraftModel(draft, 3), DraftModel(draft, tree=full_tree([3, 2]))):
        run = generate(target, PROMPT, drafter, GREEDY, max_new_tokens=40)
        assert run.tokens == plain.tokens
        assert 0 < run.stats.accepted < run.stats.drafted


@pytest.mark.parametrize("edge", [0, 1])
def test_a_reduced_vocabulary_is_exact(edge):
    """The exact law of a round is the target's, though q has no mass on one of three tokens."""
    target = tiny_model(1, 3)
    draft = DistilledDraft.random(target, 1, [0, 2], seed=4).requires_grad_(False).beside(target)
    found, wanted = law_of_round(target, DraftModel(draft, 2), (0, 2, 0, 2, 1, 0), 1, 2, Sampling(), edge)
    assert any(1 in tokens for tokens in found), "the token that the draft does not score must be emitted too"
    assert law_distance(found, wanted) < 1e-12


@pytest.mark.parametrize("ids", [None, SOME])
def test_a_stored_draft_is_the_same_draft(target, ids, tmp_path):
    path, draft = tmp_path / "new" / "draft.safetensors", DistilledDraft.random(target, 2, ids, seed=3)
    draft.save(path)
    again = DistilledDraft.load(path, target)
    assert again.config == draft.config
    assert tensors(again).keys() == tensors(draft).keys()
    assert all(torch.equal(tensors(again)[name], tensor) for name, tensor in tensors(draft).items())
    with safe_open(path, "pt") as file:
        about, names = file.metadata(), set(file.keys())
    assert (about["kind"], about["version"], about["format"]) == ("distilled", "1", "1")
    assert Config(**json.loads(about["config"])["target"]) == target.config
    assert not any(name.startswith(("embedding", "head")) for name in names), "what is the target's is not stored"
    model = again.beside(target)
    assert model.embedding is target.embedding
    assert (model.head is target.head) == (ids is None)
    single = DistilledDraft.load(path, tiny_model(1, V, dtype=torch.float32))
    assert {parameter.dtype for parameter in single.parameters()} == {torch.float32}


@pytest.mark.parametrize(("ids", "least"), [(None, 0.8), (SOME, 0.1)])
def test_a_file_in_half_precision_drafts_beside_a_packed_target(tmp_path, ids, least):
    target, path = tiny_model(1, V, scale=1.5, dtype=torch.float32), tmp_path / "draft.safetensors"
    DistilledDraft.copied(target, [0, 1], ids).half().save(path)
    wanted = generate(target, PROMPT, None, GREEDY, max_new_tokens=20).tokens
    pack_linears(target)
    model = DistilledDraft.load(path, target).requires_grad_(False).beside(target)
    assert model.layers[0].ffn.down.weight is None, "beside a packed target the draft's layers are packed"
    assert ids is None or model.head.rows.weight is None
    run = generate(target, PROMPT, DraftModel(model, 3), GREEDY, max_new_tokens=20)
    assert run.tokens == wanted
    assert run.stats.acceptance_rate > least, "the draft has all layers of the target"


def test_what_cannot_be_loaded(target, tmp_path):
    path = tmp_path / "draft.safetensors"
    with pytest.raises(CheckpointError, match=r"draft\.safetensors does not exist"):
        DistilledDraft.load(path, target)
    draft = DistilledDraft.random(target, 2, SOME)
    draft.save(path)
    with pytest.raises(CheckpointError, match="made for a target with vocab_size = 11, this one has 7"):
        DistilledDraft.load(path, tiny_model(0, 7))
    with pytest.raises(CheckpointError, match="its kind is 'distilled', expected 'eagle'"):
        EagleHead.load(path, target)
    draft.ids[0] = 11
    draft.save(path)
    with pytest.raises(CheckpointError, match=r"ids must be 6 different numbers in \[0, 11\)"):
        DistilledDraft.load(path, target)
    draft.ids[0], draft.norm.weight.data[3] = 1, float("inf")
    draft.save(path)
    with pytest.raises(CheckpointError, match=r"norm\.weight has numbers that are not finite"):
        DistilledDraft.load(path, target)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="is damaged, or no safetensors file"):
        DistilledDraft.load(path, target)


@pytest.mark.parametrize(("make", "message"), [
    (lambda t: DistilledConfig(t.config, 0), "layers must be a whole number >= 1, got 0"),
    (lambda t: DistilledConfig(t.config, 1, 12), r"draft_vocab must lie in \[1, 11\], got 12"),
    (lambda t: DistilledDraft(DistilledConfig(t.config), [1]), "ids are given, and the config's draft_vocab is None"),
    (lambda t: DistilledDraft.random(t, 1, [1, 1]), "ids must be 2 different numbers"),
    (lambda t: DistilledDraft.copied(t, [0, 2]), r"layers must be numbers in \[0, 2\), got \(0, 2\)"),
    (lambda t: DistilledDraft.random(t).beside(tiny_model(0, 7)), "vocab_size = 11, this one has 7"),
    (lambda t: DistilledDraft.random(t).float().beside(t), "float32 on cpu, the target works in torch.float64"),
    (lambda t: EagleConfig(1, t.config, own_head=False), "own_head = False is for version 3"),
])  # fmt: skip
def test_errors(target, make, message):
    with pytest.raises(ValueError, match=message):
        make(target)


# EAGLE-3 with the target's LM head.


@pytest.fixture(scope="module")
def sharing(target):
    return EagleHead.random(target, ids=SOME, seed=2, own_head=False)


def test_the_targets_rows_score(target, sharing):
    features = torch.randn(3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wanted = target.head(sharing.norm(features))[:, SOME]
    torch.testing.assert_close(sharing.logits(target, features), wanted, rtol=0, atol=1e-12)
    assert not any(parameter.shape[0] == len(SOME) for parameter in sharing.parameters()), "the rows are not trained"


def test_the_rows_are_not_stored_and_come_back(target, sharing, tmp_path):
    path = tmp_path / "head.safetensors"
    sharing.save(path)
    stored = load_file(path)
    assert not any(name.startswith("head") for name in stored)
    assert stored.keys() == sharing.state_dict().keys()
    again, text = EagleHead.load(path, target), generate(target, PROMPT, None, GREEDY, max_new_tokens=30).tokens
    for head in (sharing, again):
        run = generate(target, PROMPT, Eagle(head, depth=3, top_k=2, budget=5), GREEDY, max_new_tokens=30)
        assert run.tokens == text
    assert torch.equal(again.head.weight, sharing.head.weight)
    packed = tiny_model(1, V, scale=1.5, dtype=torch.float32)
    pack_linears(packed)
    from_packed = plain_weight(EagleHead.load(path, packed).head)
    torch.testing.assert_close(from_packed, sharing.head.weight.float(), rtol=1e-3, atol=1e-6)  # in half precision


def test_a_file_from_before_there_was_a_choice(target, tmp_path):
    path, head = tmp_path / "head.safetensors", EagleHead.random(target, ids=SOME, seed=2)
    head.save(path)
    with safe_open(path, "pt") as file:
        about = file.metadata()
    fields = json.loads(about["config"])
    assert fields.pop("own_head") is True
    save_file(load_file(path), path, about | {"config": json.dumps(fields)})
    again = EagleHead.load(path, target)
    assert again.config == head.config
    assert torch.equal(again.head.weight, head.head.weight)


def test_an_untied_packed_head_gives_its_rows():
    target = tiny_model(1, V, dtype=torch.float32)
    untied = type(target)(Config(**asdict(target.config) | {"tied": False}))
    untied.load_state_dict(target.state_dict())
    untied.head.weight = torch.nn.Parameter(torch.randn(V, 16, generator=torch.Generator().manual_seed(0)))
    wanted = untied.head.weight.detach()[SOME].clone()
    assert torch.equal(head_rows(untied, torch.tensor(SOME)), wanted)
    pack_linears(untied)
    torch.testing.assert_close(head_rows(untied, torch.tensor(SOME)), wanted, rtol=1e-3, atol=1e-3)
    rows = SharedRows(len(SOME), 16)
    rows.share(untied, torch.tensor(SOME))
    assert rows(torch.ones(1, 16)).shape == (1, 6)
