"""Heads for a target whose weights are packed are packed, too, when they are loaded; and they are the same heads."""

import copy

import pytest
import torch
from tiny import tiny_model

from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import Eagle, EagleHead, Medusa, MedusaHeads
from specdec.models.linear import Linear, pack_linears
from specdec.models.traced import Traces
from specdec.tree import full_tree

V, PROMPT = 11, [1, 2, 3, 4]
MADE = {
    "eagle-1": lambda target: EagleHead.random(target, 1, seed=2),
    "eagle-3": lambda target: EagleHead.random(target, 3, ids=range(7), seed=2),
    "eagle-3, the target's LM head": lambda target: EagleHead.random(target, 3, ids=range(7), seed=2, own_head=False),
    "medusa": lambda target: MedusaHeads.random(target, 3, seed=2),
    "medusa, LM heads of its own": lambda target: MedusaHeads.random(target, 3, own_head=True, seed=2),
}

fbgemm = pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="this build of PyTorch has no FBGEMM, which packs weights"
)


@pytest.fixture
def target():
    return tiny_model(1, V, scale=1.5, dtype=torch.float32)


@pytest.fixture
def packed(target):
    made = copy.deepcopy(target)
    pack_linears(made)
    made.traces = Traces()
    return made


def stored(name, target, tmp_path):
    path = tmp_path / "head.safetensors"
    MADE[name](target).half().save(path)
    return path


def outputs(head, target):
    """What the head makes of some features."""
    features = torch.randn(1, 3, 16, generator=torch.Generator().manual_seed(0))
    if isinstance(head, MedusaHeads):
        return head(target, features)
    return head.logits(target, features)


@fbgemm
@pytest.mark.parametrize("name", MADE)
def test_a_loaded_head_is_packed_where_its_target_is_and_says_the_same(name, target, packed, tmp_path):
    path = stored(name, target, tmp_path)
    plain, quick = (type(MADE[name](target)).load(path, one) for one in (target, packed))
    assert all(module.weight is None for module in quick.modules() if isinstance(module, Linear)), "a product reads 32-bit weights"
    torch.testing.assert_close(outputs(quick, packed), outputs(plain, target), rtol=5e-3, atol=5e-3)


@fbgemm
@pytest.mark.parametrize("name", MADE)
def test_the_text_is_the_targets(name, target, packed, tmp_path):
    head = type(MADE[name](target)).load(stored(name, target, tmp_path), packed)
    drafter = Medusa(head, full_tree([2, 1])) if isinstance(head, MedusaHeads) else Eagle(head, 3, 2, 4)
    plain = generate(packed, PROMPT, None, Sampling(0), 24, width=8).tokens
    assert generate(packed, PROMPT, drafter, Sampling(0), 24, width=8).tokens == plain


@fbgemm
def test_a_packed_head_is_not_stored(target, packed, tmp_path):
    path = stored("eagle-3", target, tmp_path)
    head, before = EagleHead.load(path, packed), path.read_bytes()
    with pytest.raises(ValueError, match="packed for drafting"):
        head.save(path)
    assert path.read_bytes() == before
