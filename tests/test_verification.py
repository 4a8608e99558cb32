"""verify_chain by itself: its law under scripted uniforms, its edges, batches and precisions. test_exactness.py runs it in the loop."""

import itertools
from fractions import Fraction

import pytest
import torch

from specdec.distributions import Sampling
from specdec.verification import verify_block, verify_chain

F64 = torch.float64


def law_on_a_grid(p, q, tokens, steps):
    """{(count, next token): number of grid points}, over every combination of `steps` midpoints for each uniform."""
    K = len(tokens)
    grid = (torch.arange(steps, dtype=F64) + 0.5) / steps
    u = torch.tensor(list(itertools.product(grid.tolist(), repeat=K + 1)), dtype=F64)
    n = len(u)
    verdict = verify_chain(p.expand(n, -1, -1), q.expand(n, -1, -1), torch.tensor(tokens).expand(n, -1), u)
    outcomes = {}
    for outcome in zip(verdict.count.tolist(), verdict.next_token.tolist()):
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return {outcome: Fraction(count, n) for outcome, count in outcomes.items()}


def test_the_law_of_a_chain_is_exact_in_rational_numbers():
    """Every threshold of these p and q is a multiple of 1/12, so a grid of 12 midpoints a uniform is an exact enumeration."""
    p = [[Fraction(n, 12) for n in row] for row in ([3, 3, 6], [6, 6, 0], [4, 0, 8])]
    q = [[Fraction(n, 12) for n in row] for row in ([6, 3, 3], [9, 0, 3])]
    emitted = {}
    for tokens in itertools.product(range(3), repeat=2):
        drafted = q[0][tokens[0]] * q[1][tokens[1]]
        if drafted == 0:
            continue
        found = law_on_a_grid(torch.tensor(p, dtype=F64), torch.tensor(q, dtype=F64), tokens, steps=12)
        for (count, last), probability in found.items():
            text = (*tokens[:count], last)
            emitted[text] = emitted.get(text, 0) + drafted * probability
    # The emitted tuples must be the target's own tokens, cut at different places: each prefix has the target's probability.
    for x in range(3):
        assert sum(m for text, m in emitted.items() if text[0] == x) == p[0][x]
    survived = {x: min(p[0][x], q[0][x]) for x in range(3)}
    for x, y in itertools.product(range(3), repeat=2):
        assert sum(m for text, m in emitted.items() if text[:2] == (x, y)) == survived[x] * p[1][y]
    second = sum(min(a, b) for a, b in zip(p[1], q[1]))
    for z in range(3):
        assert sum(m for text, m in emitted.items() if len(text) == 3 and text[2] == z) == sum(survived.values()) * second * p[2][z]


def test_coins_just_below_and_above_the_threshold():
    p, q = torch.tensor([[0.3, 0.7], [0.5, 0.5]], dtype=F64), torch.tensor([[0.6, 0.4]], dtype=F64)
    for u, count, token in [(0.4999999, 1, 0), (0.5000001, 0, 1)]:
        verdict = verify_chain(p, q, torch.tensor([0]), torch.tensor([u, 0.2], dtype=F64))
        assert (verdict.count.item(), verdict.next_token.item()) == (count, token)


def test_temperature_zero_is_the_greedy_rule():
    generator = torch.Generator().manual_seed(0)
    p = Sampling(0).probabilities(torch.randn(100, 5, 6, generator=generator))
    q = Sampling(0).probabilities(torch.randn(100, 4, 6, generator=generator))
    tokens = torch.where(torch.rand(100, 4, generator=generator) < 0.6, p[:, :4].argmax(-1), q.argmax(-1))
    verdict = verify_chain(p, torch.nn.functional.one_hot(tokens, 6).float(), tokens, torch.rand(100, 5, generator=generator))
    for row in range(100):
        argmax = p[row].argmax(-1).tolist()
        count = next((i for i in range(4) if tokens[row, i] != argmax[i]), 4)
        assert verdict.count[row] == count
        assert verdict.next_token[row] == argmax[count]


def test_point_masses_equal_one_hot_q():
    generator = torch.Generator().manual_seed(1)
    p = torch.randn(500, 4, 6, generator=generator, dtype=F64).softmax(-1)
    tokens = torch.randint(0, 6, (500, 3), generator=generator)
    u = torch.rand(500, 4, generator=generator, dtype=F64)
    first = verify_chain(p, None, tokens, u)
    second = verify_chain(p, torch.nn.functional.one_hot(tokens, 6).to(F64), tokens, u)
    assert torch.equal(first.count, second.count)
    assert torch.equal(first.next_token, second.next_token)
    assert 0 < first.count.double().mean() < 3


def test_a_batch_equals_its_rows():
    generator = torch.Generator().manual_seed(2)
    p, q = torch.randn(3, 5, 4, 6, generator=generator).softmax(-1), torch.randn(3, 5, 3, 6, generator=generator).softmax(-1)
    tokens, u = torch.randint(0, 6, (3, 5, 3), generator=generator), torch.rand(3, 5, 4, generator=generator)
    batch = verify_chain(p, q, tokens, u)
    for i, j in itertools.product(range(3), range(5)):
        row = verify_chain(p[i, j], q[i, j], tokens[i, j], u[i, j])
        assert (row.count, row.next_token) == (batch.count[i, j], batch.next_token[i, j])


def test_no_draft_samples_from_p():
    p = torch.tensor([[0.25, 0.75]])
    verdict = verify_chain(p, torch.empty(0, 2), torch.empty(0, dtype=torch.long), torch.tensor([0.25]))
    assert (verdict.count, verdict.next_token) == (0, 1)
    assert verify_chain(p, None, torch.empty(0, dtype=torch.long), torch.tensor([0.2])).next_token == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_never_emits_a_token_without_mass(dtype):
    generator = torch.Generator().manual_seed(3)
    logits = 8 * torch.randn(2000, 9, 40, generator=generator)
    p, q = Sampling(top_k=5).probabilities(logits[:, :5]).to(dtype), Sampling(top_k=5).probabilities(logits[:, 5:]).to(dtype)
    tokens = torch.multinomial(q.float().flatten(0, 1), 1, generator=generator).view(2000, 4)
    verdict = verify_chain(p, q, tokens, torch.rand(2000, 5, generator=generator))
    p_next = p[torch.arange(2000), verdict.count].gather(-1, verdict.next_token[:, None])
    assert (p_next > 0).all()
    for row in range(4):  # and no accepted token either
        accepted = verdict.count > row
        assert (p[accepted, row].gather(-1, tokens[accepted, row, None]) > 0).all()


def test_equal_p_and_q_accept_everything():
    p = torch.randn(100, 4, 6, generator=torch.Generator().manual_seed(4)).softmax(-1)
    tokens = torch.multinomial(p[:, :3].flatten(0, 1), 1, generator=torch.Generator().manual_seed(5)).view(100, 3)
    u = torch.rand(100, 4, generator=torch.Generator().manual_seed(6))
    assert (verify_chain(p, p[:, :3], tokens, u).count == 3).all()


@pytest.mark.parametrize(("p", "q", "u", "named"), [
    ((3, 5), (2, 5), (2,), "u must be"), ((2, 5), (2, 5), (3,), "p must be"),
    ((3, 5), (3, 5), (3,), "q must be"), ((3, 5), (2, 4), (3,), "q must be"),
])  # fmt: skip
def test_shapes_are_named(p, q, u, named):
    with pytest.raises(ValueError, match=named):
        verify_chain(torch.rand(p), torch.rand(q), torch.zeros(2, dtype=torch.long), torch.rand(u))


@pytest.mark.parametrize("rule", [verify_chain, verify_block])
def test_a_token_of_a_row_without_mass_is_a_point_mass(rule):
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(50, n, 4, generator=generator, dtype=F64).softmax(-1) for n in (4, 3))
    tokens, u = torch.randint(0, 4, (50, 3), generator=generator), torch.rand(50, 4, generator=generator, dtype=F64)
    q[:, 1], one_hot = 0, q.clone()
    one_hot[:, 1] = torch.nn.functional.one_hot(tokens[:, 1], 4)
    found, expected = rule(p, q, tokens, u), rule(p, one_hot, tokens, u)
    assert torch.equal(found.count, expected.count)
    assert torch.equal(found.next_token, expected.next_token)
