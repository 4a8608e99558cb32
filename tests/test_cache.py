import pytest
import torch

from specdec.cache import CacheFull, KVCache
from specdec.config import Config

CONFIG = Config(11, 16, layers=3, heads=4, kv_heads=2, head_dim=4, ffn_size=32, max_length=64)


def filled(tokens: int, max_length: int = 12, batch_size: int = 2) -> KVCache:
    """A cache whose slot i holds i in every layer's keys and -i in its values."""
    cache = KVCache(CONFIG, batch_size, max_length)
    slots = torch.arange(tokens, dtype=torch.float32)[:, None].expand(batch_size, 2, tokens, 4)
    for layer in range(CONFIG.layers):
        cache.append(layer, slots + 100 * layer, -slots - 100 * layer)
    return cache


def contents(cache: KVCache, layer: int = 0) -> list[float]:
    keys, values = cache.read(layer)
    assert torch.equal(keys, -values)
    return (keys[0, 0, :, 0] - 100 * layer).tolist()


def test_append_and_read():
    cache = filled(5)
    assert cache.length == 5
    for layer in range(3):
        assert contents(cache, layer) == [0, 1, 2, 3, 4]
    assert cache.read(0)[0].shape == (2, 2, 5, 4)


def test_rollback_is_a_number_and_not_a_copy():
    cache = filled(8)
    before, pointers = cache.keys.clone(), (cache.keys.data_ptr(), cache.values.data_ptr())
    cache.rollback(3)
    assert cache.length == 3
    assert contents(cache) == [0, 1, 2]
    assert torch.equal(cache.keys, before), "rolling back must not touch the tensors"
    for layer in range(3):
        cache.append(layer, torch.full((2, 2, 1, 4), 9.0 + 100 * layer), torch.full((2, 2, 1, 4), -9.0 - 100 * layer))
    assert contents(cache, 2) == [0, 1, 2, 9]
    assert (cache.keys.data_ptr(), cache.values.data_ptr()) == pointers


@pytest.mark.parametrize("slots", [[2], [2, 3], [3, 4, 6], [0, 7], list(range(8))])
def test_keep_compacts_the_path_in_every_layer(slots):
    cache = filled(8)
    cache.keep(torch.tensor(slots))
    for layer in range(3):
        assert contents(cache, layer) == list(range(slots[0])) + slots
    assert cache.length == slots[0] + len(slots)


def test_a_full_cache_refuses_before_it_writes():
    cache = filled(10, max_length=12)
    before = cache.keys.clone()
    with pytest.raises(CacheFull, match="12 slots, 10 are filled, and 3 more"):
        cache.append(0, torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3, 4))
    with pytest.raises(CacheFull):
        cache.require(3)
    cache.require(2)
    assert torch.equal(cache.keys, before)
    assert cache.length == 10


def test_bytes_are_what_the_configuration_predicts():
    assert filled(1).bytes == CONFIG.kv_bytes(12, batch_size=2, bytes_per_number=4)


@pytest.mark.parametrize(("call", "message"), [
    (lambda c: c.rollback(6), r"\[0, 5\], got 6"), (lambda c: c.rollback(-1), "got -1"),
    (lambda c: c.keep([]), "strictly increasing"), (lambda c: c.keep([3, 2]), "strictly increasing"),
    (lambda c: c.keep([5]), "strictly increasing"),
    (lambda c: c.append(0, torch.ones(2, 3, 1, 4), torch.ones(2, 3, 1, 4)), "must be"),
    (lambda c: KVCache(CONFIG, 0, 5), "batch_size"),
])  # fmt: skip
def test_bad_calls_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(filled(5))
