"""The transformer against an independent, slow one, and against itself: with and without cache, tree against its paths."""

import math

import pytest
import torch
from tiny import tiny_model

from specdec.cache import CacheFull
from specdec.config import Config
from specdec.models.norm import RMSNorm
from specdec.models.transformer import random_model, rope_frequencies, rotate
from specdec.tree import TokenTree


def slow_logits(model, tokens):
    """The same network written out head by head and position by position. tokens: list of ids → (T, V)."""
    c, T = model.config, len(tokens)
    x = model.embedding.weight[tokens]

    def norm(x, weight):
        return torch.stack([row / math.sqrt(float((row * row).mean()) + c.norm_eps) * weight for row in x])

    def rotated(vector, position):
        out, half = vector.clone(), c.head_dim // 2
        for i in range(half):
            angle = position * c.rope_theta ** (-2 * i / c.head_dim)
            a, b = float(vector[i]), float(vector[i + half])
            out[i], out[i + half] = a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)
        return out

    for layer in model.layers:
        qkv = (norm(x, layer.attention_norm.weight) @ layer.attention.qkv.weight.T).view(T, -1, c.head_dim)
        heads = []
        for h in range(c.heads):
            kv = h // (c.heads // c.kv_heads)
            q = [rotated(qkv[t, h], t) for t in range(T)]
            k = [rotated(qkv[t, c.heads + kv], t) for t in range(T)]
            v = qkv[:, c.heads + c.kv_heads + kv]
            rows = []
            for t in range(T):
                scores = torch.stack([q[t] @ k[s] / math.sqrt(c.head_dim) for s in range(t + 1)])
                rows.append(scores.softmax(0) @ v[: t + 1])
            heads.append(torch.stack(rows))
        x = x + torch.cat(heads, 1) @ layer.attention.out.weight.T
        y = norm(x, layer.ffn_norm.weight) @ layer.ffn.gate_up.weight.T
        gate, up = y[:, : c.ffn_size], y[:, c.ffn_size :]
        x = x + (gate / (1 + (-gate).exp()) * up) @ layer.ffn.down.weight.T
    return norm(x, model.norm.weight) @ model.head.weight.T


@pytest.mark.parametrize(("heads", "kv_heads", "tied"), [(4, 2, True), (4, 4, False), (3, 1, True)])
def test_against_the_slow_twin(heads, kv_heads, tied):
    config = Config(13, 24, 2, heads, kv_heads, 8, 40, 32, rope_theta=1000.0, tied=tied)
    model = random_model(config, seed=0, dtype=torch.float64)
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]
    fast = model(torch.tensor([tokens]), model.new_cache()).logits[0]
    torch.testing.assert_close(fast, slow_logits(model, tokens), rtol=0, atol=1e-6)  # rotary tables are float32


@pytest.mark.parametrize("pieces", [[9], [1] * 9, [4, 5], [5, 1, 3]])
def test_with_and_without_cache(pieces):
    model = tiny_model(0, vocab_size=11)
    tokens = torch.randint(0, 11, (2, 9), generator=torch.Generator().manual_seed(0))
    cache = model.new_cache(9, batch_size=2)
    logits = [model(part, cache).logits for part in tokens.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(logits, 1), model(tokens, model.new_cache(9, 2)).logits, rtol=0, atol=1e-12)
    torch.testing.assert_close(model(tokens, model.new_cache(9, 2), rows=2).logits, torch.cat(logits, 1)[:, -2:], rtol=0, atol=1e-12)


def test_a_tree_in_one_forward_equals_its_paths_one_by_one():
    model = tiny_model(1, vocab_size=11)
    prefix = torch.tensor([[1, 2, 3, 4]])
    tree = TokenTree(torch.tensor([5, 6, 7, 8, 9, 5]), torch.tensor([-1, -1, 0, 0, 1, 3]))
    cache = model.new_cache(16)
    model(prefix, cache)
    together = model(tree.tokens[None], cache, positions=4 + tree.depths - 1, mask=tree.mask).logits[0]
    for path in tree.paths:
        alone = model(torch.cat([prefix, tree.tokens[path][None]], 1), model.new_cache(16)).logits[0, 4:]
        torch.testing.assert_close(together[path], alone, rtol=0, atol=1e-12)
    # Negative control: with siblings that see each other, or with the index as the position, the paths differ.
    for wrong in ({"positions": 4 + torch.arange(6), "mask": tree.mask}, {"positions": 4 + tree.depths - 1, "mask": None}):
        cache.rollback(4)
        logits = model(tree.tokens[None], cache, **wrong).logits[0]
        assert (logits - together).abs().max() > 1e-3


def test_keep_after_a_tree_continues_the_path():
    model = tiny_model(1, vocab_size=11)
    tree = TokenTree(torch.tensor([5, 6, 7, 8]), torch.tensor([-1, -1, 1, 2]))
    cache = model.new_cache(16)
    model(torch.tensor([[1, 2, 3]]), cache)
    model(tree.tokens[None], cache, positions=3 + tree.depths - 1, mask=tree.mask)
    cache.keep([2] + [3 + node for node in [1, 2]])  # the last prefix token is the root
    after = model(torch.tensor([[9]]), cache).logits
    torch.testing.assert_close(after, model(torch.tensor([[1, 2, 3, 6, 7, 9]]), model.new_cache(16), rows=1).logits, rtol=0, atol=1e-12)


def test_dropped_slots_are_never_read():
    """NaN in a slot that attention only masks would still reach the output, since 0 · NaN is NaN."""
    model = tiny_model(2, vocab_size=11)
    cache = model.new_cache(16)
    model(torch.tensor([[1, 2, 3, 4, 5]]), cache)
    cache.rollback(3)
    cache.keys[:, :, :, 3:], cache.values[:, :, :, 3:] = float("nan"), float("nan")
    for tokens in ([[7]], [[8, 9]]):
        assert torch.isfinite(model(torch.tensor(tokens), cache).logits).all()


def test_truncation_shares_its_weights():
    model = tiny_model(3, vocab_size=11, layers=4)
    short = model.truncated(2)
    assert len(short.layers) == short.config.layers == 2
    assert short.layers[1] is model.layers[1]
    assert short.embedding is model.embedding
    assert short.new_cache(5).keys.shape[0] == 2
    same = model.truncated(4)
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(same(tokens, same.new_cache()).logits, model(tokens, model.new_cache()).logits)


def test_bad_input_is_named_and_leaves_the_cache_alone():
    model = tiny_model(0, vocab_size=11)
    cache = model.new_cache(4)
    model(torch.tensor([[1, 2, 3]]), cache)
    before = cache.keys.clone()
    with pytest.raises(CacheFull):
        model(torch.tensor([[1, 2]]), cache)
    for tokens in (torch.tensor([1, 2]), torch.empty(1, 0, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"tokens must be \(1, T\)"):
            model(tokens, cache)
    with pytest.raises(ValueError, match="mask must be"):
        model(torch.tensor([[1]]), cache, mask=torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="layers must lie"):
        model.truncated(3)
    assert cache.length == 3
    assert torch.equal(cache.keys, before)
    with pytest.raises(ValueError, match="context of 256"):
        model(torch.zeros(1, 300, dtype=torch.long), model.new_cache(300))
    with pytest.raises(ValueError, match="multiple of kv_heads"):
        Config(11, 16, 2, 4, 3, 4, 32, 64)


@pytest.mark.parametrize("shape", [(8,), (1, 1, 576), (2, 3, 9, 64)])
def test_our_norm_is_pytorchs(shape):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(shape, generator=generator, dtype=torch.float64) * 3).requires_grad_()
    ours, theirs = RMSNorm(shape[-1], 1e-5).double(), torch.nn.RMSNorm(shape[-1], 1e-5).double()
    for norm in (ours, theirs):
        norm.weight.data.copy_(torch.linspace(0.5, 2, shape[-1]))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-13, atol=0)
    found, expected = (torch.autograd.grad(norm(x).square().sum(), [x, norm.weight]) for norm in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    single = x.detach().float()
    torch.testing.assert_close(ours.float()(single), theirs.float()(single), rtol=1e-6, atol=1e-7)


def test_a_norm_of_nothing_is_nothing_and_half_precision_goes_pytorchs_way():
    norm = RMSNorm(16, 1e-5)
    assert torch.equal(norm(torch.zeros(2, 16)), torch.zeros(2, 16))
    tiny = torch.full((16,), 1e-4)
    torch.testing.assert_close(norm(tiny), torch.nn.RMSNorm(16, 1e-5)(tiny), rtol=1e-6, atol=0)  # where eps decides
    half, x = norm.bfloat16(), torch.full((16,), 300.0, dtype=torch.bfloat16)
    assert torch.equal(half(x), torch.nn.RMSNorm(16, 1e-5).bfloat16()(x))


def test_rotating_turns_each_pair():
    generator = torch.Generator().manual_seed(0)
    model = tiny_model(0)
    d = model.config.head_dim
    x, angles = torch.randn(1, 2, 5, d, generator=generator, dtype=torch.float64), rope_frequencies(model.config) * 3
    found = rotate(x, *(table[3].double() for table in (model.cos, model.sin)))
    for i, angle in enumerate(angles):
        a, b = x[..., i], x[..., i + d // 2]
        torch.testing.assert_close(found[..., i], a * angle.cos() - b * angle.sin(), rtol=0, atol=1e-6)
        torch.testing.assert_close(found[..., i + d // 2], b * angle.cos() + a * angle.sin(), rtol=0, atol=1e-6)
