import pytest
import torch

from specdec.distributions import Sampling, acceptance_rate, inverse_cdf, kl_divergence, residual, total_variation


def random_pair(V=7, n=200, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(2, n, V, generator=generator, dtype=torch.float64)
    p, q = logits.softmax(-1).to(dtype)
    return p, q


def test_one_step_gives_back_p():
    """min(p, q) + (1 - α) · residual = p, the identity that the whole field rests on."""
    p, q = random_pair()
    rebuilt = torch.minimum(p, q) + (1 - acceptance_rate(p, q))[:, None] * residual(p, q)
    torch.testing.assert_close(rebuilt, p, rtol=0, atol=1e-14)


def test_acceptance_rate_is_one_minus_total_variation():
    p, q = random_pair()
    torch.testing.assert_close(acceptance_rate(p, q), 1 - total_variation(p, q), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_residual_is_a_distribution_even_without_mass(dtype):
    p, q = random_pair(dtype=dtype)
    one_hot = torch.eye(7, dtype=dtype)
    for a, b in [(p, q), (p, p), (one_hot, one_hot), (one_hot, one_hot.roll(1, 0)), (p[:7], one_hot)]:
        r = residual(a, b)
        assert torch.isfinite(r).all()
        tolerance = 1e-6 if dtype.itemsize >= 4 else 1e-2
        torch.testing.assert_close(r.sum(-1), torch.ones_like(r.sum(-1)), rtol=0, atol=tolerance)


def test_kl_handles_zeros():
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5])
    assert kl_divergence(p, q) == pytest.approx(0.693147, abs=1e-6)
    assert kl_divergence(q, p) == float("inf")
    assert kl_divergence(p, p) == 0


@pytest.mark.parametrize("function", [residual, acceptance_rate, total_variation, kl_divergence])
def test_different_vocabularies_are_named(function):
    with pytest.raises(ValueError, match="got 3 and 4"):
        function(torch.ones(3) / 3, torch.ones(4) / 4)


def test_temperature_zero_is_the_argmax_and_the_lowest_id_on_ties():
    probabilities = Sampling(0).probabilities(torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]]))
    assert probabilities.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_temperature_tends_to_greedy_and_to_uniform():
    logits = torch.tensor([1.0, 2.0, 0.5])
    torch.testing.assert_close(Sampling(1e-30).probabilities(logits), Sampling(0).probabilities(logits))
    torch.testing.assert_close(Sampling(1e9).probabilities(logits), torch.ones(3) / 3)


def slow_filter(logits, sampling: Sampling):
    """The same filters one token at a time, from their definitions."""
    probs = (logits / sampling.temperature).softmax(-1).tolist()
    order = sorted(range(len(probs)), key=lambda i: (-probs[i], i))
    if sampling.top_k is not None:
        order = order[: sampling.top_k]
    total = sum(probs[i] for i in order)
    kept, mass = [], 0.0
    for i in order:
        if sampling.top_p is not None and mass / total >= sampling.top_p:
            break
        kept.append(i)
        mass += probs[i]
    if sampling.min_p is not None:
        kept = [i for i in kept if probs[i] >= sampling.min_p * probs[order[0]]]
    total = sum(probs[i] for i in kept)
    return torch.tensor([probs[i] / total if i in kept else 0.0 for i in range(len(probs))], dtype=torch.float64)


@pytest.mark.parametrize("sampling", [
    Sampling(0.7), Sampling(top_k=1), Sampling(top_k=3), Sampling(top_k=100), Sampling(top_p=0.5), Sampling(top_p=1e-9),
    Sampling(top_p=1.0), Sampling(min_p=0.2), Sampling(1.5, 5, 0.8, 0.1), Sampling(min_p=1.0),
])  # fmt: skip
def test_filters_equal_their_definitions(sampling):
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits[0, :4] = 1.0  # ties
    logits[1, 3] = -float("inf")
    for row in logits:
        torch.testing.assert_close(sampling.probabilities(row), slow_filter(row, sampling), rtol=0, atol=1e-12)


def test_batched_equals_row_by_row_and_leaves_the_logits_alone():
    logits = torch.randn(4, 3, 9, generator=torch.Generator().manual_seed(2))
    before = logits.clone()
    sampling = Sampling(0.8, 5, 0.9, 0.05)
    batched = sampling.probabilities(logits)
    assert torch.equal(logits, before)
    for index in range(4):
        torch.testing.assert_close(batched[index], sampling.probabilities(logits[index]))


@pytest.mark.parametrize(("values", "named"), [
    ({"temperature": -1}, "temperature"), ({"temperature": float("nan")}, "temperature"), ({"temperature": float("inf")}, "temperature"),
    ({"top_k": 0}, "top_k"), ({"top_p": 0.0}, "top_p"), ({"top_p": 1.1}, "top_p"), ({"min_p": -0.1}, "min_p"),
])  # fmt: skip
def test_bad_sampling_is_named(values, named):
    with pytest.raises(ValueError, match=named):
        Sampling(**values)


def test_inverse_cdf_at_its_edges():
    p = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0])
    expected = {0.0: 1, 0.2499999: 1, 0.25: 3, 0.999999999: 3, 1 - 2**-53: 3}
    assert {u: inverse_cdf(p, torch.tensor(u, dtype=torch.float64)).item() for u in expected} == expected


def test_inverse_cdf_never_returns_a_token_without_mass():
    p, _ = random_pair(V=50, dtype=torch.float32)
    p = p * (torch.rand(p.shape, generator=torch.Generator().manual_seed(3)) < 0.3)
    p[:, 0] += 1e-30
    for u in (0.0, 0.5, 1 - 2**-24, 1 - 2**-53):
        token = inverse_cdf(p, torch.full((len(p),), u, dtype=torch.float64))
        assert (p.gather(-1, token[:, None]) > 0).all()
