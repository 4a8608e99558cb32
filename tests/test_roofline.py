"""Operations and bytes, against the model that does and moves them."""

import pytest
import torch
from tiny import tiny_model

from specdec import roofline
from specdec.models.linear import Linear
from specdec.roofline import MACHINES, MODELS, Machine, Work, forward_work


def test_weights_are_those_of_the_model_s_matrices():
    target = tiny_model(0)
    assert target.config.weights() == sum(m.weight.numel() for m in target.modules() if isinstance(m, Linear))


@pytest.mark.parametrize(("name", "billions"), [
    ("SmolLM2-135M", 0.1345), ("Llama-3.2-1B", 1.236), ("Llama-2-7B", 6.738), ("Llama-3.1-8B", 8.030), ("Llama-2-13B", 13.016),
    ("Qwen3-32B", 32.762), ("Llama-3.1-70B", 70.554),
])  # fmt: skip
def test_published_models_have_the_parameters_that_their_pages_state(name, billions):
    config = MODELS[name]
    table = 0 if config.tied else config.vocab_size * config.hidden_size
    assert (config.weights() + table) / 1e9 == pytest.approx(billions, rel=1e-3)


def test_operations_are_those_that_pytorch_counts():
    """Attention over c cached tokens and n new ones, of which PyTorch counts every pair: c + n for each."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    target, cached, new = tiny_model(0), 6, 2
    cache = target.new_cache(cached + new)
    ids = torch.arange(cached + new)[None] % target.config.vocab_size
    with torch.inference_mode():
        target(ids[:, :cached], cache)
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # which is made of products that are counted
            target(ids[:, cached:], cache)
    own = forward_work(target.config, new, cached + new).operations
    assert own == pytest.approx(counter.get_total_flops())


def test_bytes_are_the_weights_once_and_each_text_s_cache():
    config = MODELS["Llama-3.1-8B"]
    one = forward_work(config, cached=1000)
    assert one.bytes == config.weights() * 2 + config.kv_bytes(1000)
    assert forward_work(config, new=5, cached=1000).bytes == one.bytes
    assert forward_work(config, cached=1000, batch=3).bytes == config.weights() * 2 + 3 * config.kv_bytes(1000)
    assert forward_work(config, bits=4).bytes == config.weights() / 2
    assert forward_work(config, new=4, batch=3, cached=7).operations == 12 * forward_work(config, cached=7).operations


def test_at_the_ridge_both_take_equally_long():
    machine, config = Machine(bandwidth=10, rate=80), MODELS["SmolLM2-135M"]
    assert machine.ridge == 8
    for bits in (16, 4):
        n = machine.free_tokens(bits)
        work = forward_work(config, new=n, bits=bits)
        assert work.intensity == pytest.approx(machine.ridge)
        assert machine.seconds(work) == pytest.approx(work.bytes / 10)
        assert machine.seconds(forward_work(config, new=3 * n, bits=bits)) == pytest.approx(3 * machine.seconds(work))
        assert machine.seconds(forward_work(config, new=n / 3, bits=bits)) == machine.seconds(work)


def test_a_machine_without_bandwidth_is_refused():
    with pytest.raises(ValueError, match="bandwidth and rate must be > 0"):
        Machine(0, 1)
    assert MACHINES["H100 SXM"].ridge == pytest.approx(295, abs=1)


def test_a_machine_is_measured_by_the_best_of_its_runs(monkeypatch):
    target = tiny_model(0)
    monkeypatch.setattr(roofline, "seconds_of", lambda cases, repeats, device: {"sum": [3.0, 2.0], "dot": [4.0, 1.0]})
    monkeypatch.setattr(roofline, "product_seconds", lambda target, rows, repeats: [4.0, 2.0])
    assert roofline.memory_bandwidth(megabytes=1) == 2**20
    assert roofline.product_rate(target, rows=8) == 2 * target.config.weights() * 8 / 2
    monkeypatch.undo()
    found = Machine(roofline.memory_bandwidth(megabytes=1), roofline.product_rate(target, rows=2))
    assert found.seconds(Work(0, 1)) == 1 / found.bandwidth
