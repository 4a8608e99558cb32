"""The losses against loops over single positions, the gradient against finite differences, and what a little training is good for."""

import math

import pytest
import torch
from tiny import tiny_model

from specdec.config import Config
from specdec.decoding import generate
from specdec.drafters import DraftModel, Eagle, EagleHead, Medusa, MedusaHeads
from specdec.models.attention import view
from specdec.models.transformer import random_model
from specdec.training import losses
from specdec.training.losses import (
    distillation_loss,
    eagle1_loss,
    eagle3_loss,
    medusa_loss,
    rollout,
    scored_loss,
    training_time_test,
)
from specdec.tree import full_tree

SOME = [1, 3, 4, 5, 8, 9]
DOUBLE = torch.float64


@pytest.fixture(scope="module")
def target():
    return tiny_model(1, vocab_size=11, scale=1.5)


@pytest.fixture(scope="module")
def texts():
    return torch.randint(0, 11, (2, 7), generator=torch.Generator().manual_seed(5))


def softmax(logits):
    largest = max(logits)
    weights = [math.exp(x - largest) for x in logits]
    return [w / sum(weights) for w in weights]


def score(target, texts, layers=()):
    return target(texts, target.new_cache(texts.shape[1], len(texts)), layers=layers)


# Against loops.


def test_distillation_is_the_mean_kl():
    generator = torch.Generator().manual_seed(0)
    p_logits, q_logits = (torch.randn(2, 3, 5, dtype=DOUBLE, generator=generator) for _ in range(2))
    total = 0
    for b in range(2):
        for t in range(3):
            p, q = softmax(p_logits[b, t].tolist()), softmax(q_logits[b, t].tolist())
            total += sum(x * math.log(x / y) for x, y in zip(p, q, strict=True))
    assert float(distillation_loss(p_logits, q_logits)) == pytest.approx(total / 6, abs=1e-12)
    assert float(distillation_loss(p_logits, p_logits)) == pytest.approx(0, abs=1e-12)
    p_logits.requires_grad_(), q_logits.requires_grad_()
    distillation_loss(p_logits, q_logits).backward()
    assert p_logits.grad is None
    assert q_logits.grad.abs().sum() > 0


def test_the_overlap_loss_is_the_chance_of_a_rejection():
    generator = torch.Generator().manual_seed(0)
    p_logits, q_logits = (torch.randn(2, 3, 5, dtype=DOUBLE, generator=generator) for _ in range(2))
    total = sum(
        1 - sum(map(min, softmax(p_logits[b, t].tolist()), softmax(q_logits[b, t].tolist())))
        for b in range(2)
        for t in range(3)
    )
    assert float(distillation_loss(p_logits, q_logits, kind="overlap")) == pytest.approx(total / 6, abs=1e-12)


@pytest.mark.parametrize("kind", ["kl", "overlap"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_loss_in_pieces_equals_the_plain_one(monkeypatch, kind, masked):
    """Value and both gradients, with pieces that do not divide the rows; p need not add up to 1."""
    monkeypatch.setattr(losses, "CHUNK", 4)
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, dtype=DOUBLE, generator=generator).requires_grad_() for shape in ((2, 5, 6), (9, 6)))
    p = torch.rand(2, 5, 9, dtype=DOUBLE, generator=generator) / 6
    mask = torch.rand(2, 5, generator=generator) < 0.7 if masked else None
    assert not masked or 0 < int(mask.sum()) < 10
    log_q = (x @ weight.T).log_softmax(-1)
    rows = -(p * log_q).sum(-1) if kind == "kl" else 1 - torch.minimum(p, log_q.exp()).sum(-1)
    plain = rows.mean() if mask is None else rows[mask].mean()
    fast = scored_loss(x, weight, p, mask, kind)
    torch.testing.assert_close(fast, plain, rtol=1e-12, atol=1e-12)
    for a, b in zip(torch.autograd.grad(3 * fast, (x, weight)), torch.autograd.grad(3 * plain, (x, weight)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg="the gradient in pieces is not that of the plain loss")


def padded(texts, lengths):
    """Texts cut to these lengths, with noise behind them, and the mask."""
    mask = torch.arange(texts.shape[1] + 2) < torch.tensor(lengths)[:, None]
    noise = torch.randint(0, 11, mask.shape, generator=torch.Generator().manual_seed(9))
    return torch.where(mask, torch.cat([texts, texts[:, :2]], dim=-1), noise), mask


def per_row(loss, counts):
    """The mean over a batch out of the means of its rows, each on its own text."""
    return sum(n * float(loss(row)) for row, n in enumerate(counts)) / sum(counts)


LENGTHS = [7, 5]


@torch.no_grad()
def test_padding_counts_in_no_loss(target, texts):
    """A padded batch against its texts one by one, unpadded and without a mask."""
    tokens, mask = padded(texts, LENGTHS)
    alone = [text[None, :n] for text, n in zip(texts, LENGTHS, strict=True)]
    whole, single = score(target, tokens), [score(target, text) for text in alone]
    other = target.truncated(1)
    assert float(distillation_loss(whole.logits, score(other, tokens).logits, mask)) == pytest.approx(
        per_row(lambda row: distillation_loss(single[row].logits, score(other, alone[row]).logits), LENGTHS)
    )
    heads = MedusaHeads.random(target, heads=1, seed=1)
    assert float(medusa_loss(heads(target, whole.hidden), tokens, mask=mask)) == pytest.approx(
        per_row(lambda row: medusa_loss(heads(target, single[row].hidden), alone[row]), [n - 2 for n in LENGTHS])
    )
    head = EagleHead.random(target, 1, seed=2)
    assert float(eagle1_loss(head, target, tokens, whole.hidden, mask=mask)) == pytest.approx(
        per_row(lambda row: eagle1_loss(head, target, alone[row], single[row].hidden), [n - 1 for n in LENGTHS])
    )
    for kind in ("kl", "overlap"):
        assert_padding_is_free_in_eagle3(target, tokens, mask, alone, kind)


def assert_padding_is_free_in_eagle3(target, tokens, mask, alone, kind):
    head, steps = EagleHead.random(target, 3, ids=SOME, seed=2), 3

    def terms(tokens, mask=None):
        """The loss of each step alone: what one step more adds."""
        output = score(target, tokens, head.config.layers)
        p = output.logits.softmax(-1)[..., head.ids]
        sums = [0.0] + [
            float(training_time_test(head, target, tokens, output.layers, p, n, 0.8, mask, kind)) for n in range(1, steps + 1)
        ]
        return [after - before for before, after in zip(sums, sums[1:])]

    single, whole = [terms(text) for text in alone], terms(tokens, mask)
    for step in range(steps):
        counts = [n - 1 - step for n in LENGTHS]
        assert whole[step] == pytest.approx(per_row(lambda row, step=step: single[row][step], counts), rel=1e-6)


def test_eagle1_with_a_part_of_the_head(target, texts):
    """All rows are the whole head; some rows are the target renormalised over them. A packed head is then no obstacle."""
    head, hidden = EagleHead.random(target, version=1, seed=2), score(target, texts).hidden
    whole = eagle1_loss(head, target, texts, hidden)
    torch.testing.assert_close(eagle1_loss(head, target, texts, hidden, rows=target.head.weight), whole)
    rows = target.head.weight[SOME]
    ((own, _),) = rollout(head, target, texts, hidden, 1)
    p, log_q = (hidden[:, 1:] @ rows.T).softmax(-1), (own @ rows.T).log_softmax(-1)
    wanted = torch.nn.functional.smooth_l1_loss(own, hidden[:, 1:]) - 0.1 * (p * log_q).sum(-1).mean()
    torch.testing.assert_close(eagle1_loss(head, target, texts, hidden, rows=rows), wanted)


@pytest.mark.parametrize("K", [1, 3])
def test_medusa_loss_equals_a_loop(target, texts, K):
    heads = MedusaHeads.random(target, heads=K, seed=1)
    hidden = score(target, texts).hidden
    total = 0.0
    for k in range(1, K + 1):
        terms = []
        for text, rows in zip(texts.tolist(), hidden, strict=True):
            for now, token in enumerate(text):
                before = now - k - 1  # head k said this token at that position
                if before >= 0:
                    terms.append(-math.log(softmax(heads(target, rows[before])[k - 1].tolist())[token]))
        total += 0.8**k * sum(terms) / len(terms)
    assert float(medusa_loss(heads(target, hidden), texts).detach()) == pytest.approx(total, abs=1e-10)


def drafted(head, target, text, features, t, steps):
    """The head as it drafts behind pair t, on a real cache, one pair at a time; the text itself names the drafted tokens.

    Returns own features and logits of steps 1 … as far as the text goes."""
    cache, own, found = head.new_cache(len(text)), None, []
    for position in range(min(t + steps, len(text) - 1)):
        feature = features[position] if position <= t else own
        token = torch.tensor([[text[position + 1]]])
        own = head(target, token, feature.view(1, 1, -1), view(cache, 1, None, False), torch.tensor([position]))[0, 0]
        if position >= t:
            found.append((own, head.logits(target, own)))
    return found


@torch.no_grad()
def slow_eagle1(head, target, texts):
    distance, entropy, pairs = 0.0, 0.0, 0
    for text in texts.tolist():
        output = score(target, torch.tensor([text]))
        for t in range(len(text) - 1):
            ((own, logits),) = drafted(head, target, text, output.hidden[0], t, 1)
            for a, b in zip(own.tolist(), output.hidden[0, t + 1].tolist(), strict=True):
                distance += ((a - b) ** 2 / 2 if abs(a - b) < 1 else abs(a - b) - 0.5) / len(own)
            p, q = softmax(output.logits[0, t + 1].tolist()), softmax(logits.tolist())
            entropy -= sum(x * math.log(y) for x, y in zip(p, q, strict=True))
            pairs += 1
    return (distance + 0.1 * entropy) / pairs


@torch.no_grad()
def slow_eagle3(head, target, texts, steps):
    terms = [[] for _ in range(steps)]
    for text in texts.tolist():
        output = score(target, torch.tensor([text]), head.config.layers)
        features = head.features(None, output.layers)[0]
        for t in range(len(text) - 1):
            for step, (_, logits) in enumerate(drafted(head, target, text, features, t, steps), 1):
                p, q = softmax(output.logits[0, t + step].tolist()), softmax(logits.tolist())
                terms[step - 1].append(-sum(p[token] * math.log(q[i]) for i, token in enumerate(head.ids.tolist())))
    return sum(0.8**s * sum(values) / len(values) for s, values in enumerate(terms))


def fast(head, target, texts, steps=3):
    output = score(target, texts, head.config.layers)
    if head.config.version == 1:
        return eagle1_loss(head, target, texts, output.hidden)
    return eagle3_loss(head, target, texts, output.layers, output.logits, steps)


def slow(head, target, texts, steps=3):
    return slow_eagle1(head, target, texts) if head.config.version == 1 else slow_eagle3(head, target, texts, steps)


@pytest.mark.parametrize(("version", "ids", "steps"), [(1, None, 1), (3, None, 1), (3, SOME, 3), (3, SOME, 6)])
def test_eagle_losses_equal_real_drafting(target, texts, version, ids, steps):
    head = EagleHead.random(target, version, ids=ids, seed=2)
    assert float(fast(head, target, texts, steps).detach()) == pytest.approx(slow(head, target, texts, steps), abs=1e-9)


@pytest.mark.parametrize("version", [1, 3])
def test_the_gradient_is_the_slope_of_the_slow_loss(target, texts, version):
    """Through every step of the rollout: a gradient cut somewhere would miss a part of the slope."""
    head, generator = EagleHead.random(target, version, seed=2), torch.Generator().manual_seed(3)
    fast(head, target, texts).backward()
    assert all(parameter.grad is None for parameter in target.parameters())
    direction = {name: torch.randn(p.shape, dtype=DOUBLE, generator=generator) for name, p in head.named_parameters()}
    slope = sum(float((p.grad * direction[name]).sum()) for name, p in head.named_parameters())
    values = []
    for epsilon in (1e-5, -1e-5):
        moved = EagleHead.random(target, version, seed=2)
        with torch.no_grad():
            for name, p in moved.named_parameters():
                p += epsilon * direction[name]
        values.append(slow(moved, target, texts))
    assert slope == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5)


@pytest.mark.parametrize(("make", "message"), [
    (lambda t, x: medusa_loss(torch.zeros(1, 4, 3, 11), x[:1, :4]), "head 3 looks 4 tokens ahead, the texts have 4 tokens"),
    (lambda t, x: eagle1_loss(EagleHead.random(t, 3), t, x, torch.zeros(2, 7, 16)), "loss of version 1, got a head of version 3"),
    (lambda t, x: eagle3_loss(EagleHead.random(t, 1), t, x, x, x), "loss of version 3, got a head of version 1"),
    (lambda t, x: next(rollout(EagleHead.random(t, 1), t, x, torch.zeros(2, 7, 16), 7)), r"steps must lie in \[1, 6\] .* 7 tokens, got 7"),
    (lambda t, x: next(rollout(EagleHead.random(t, 1), t, x, torch.zeros(2, 7, 16), 0)), r"steps must lie in \[1, 6\] .* got 0"),
])  # fmt: skip
def test_errors(target, texts, make, message):
    with pytest.raises(ValueError, match=message):
        make(target, texts)


def test_a_packed_head_is_refused(texts):
    target = tiny_model(1, vocab_size=11)
    head = EagleHead.random(target, version=1)
    target.head.weight = None
    with pytest.raises(ValueError, match="no gradient can pass through a packed LM head"):
        eagle1_loss(head, target, texts, torch.zeros(2, 7, 16, dtype=DOUBLE))
    with pytest.raises(ValueError, match="cannot be copied"):
        MedusaHeads.untrained(target, own_head=True)


# A little training.

CHAIN = full_tree([1, 1, 1])
PAIRS = [[first, second] for first in range(11) for second in range(11)]  # prompts; some to train on, others held out


def sample(target, prompts, seed):
    runs = generate(target, prompts, None, max_new_tokens=24, seed=seed)
    return torch.tensor([prompt + run.tokens for prompt, run in zip(prompts, runs, strict=True)])


@pytest.fixture(scope="module")
def sampled(target):
    """Texts of the target's own, to train on."""
    return sample(target, [prompt for i, prompt in enumerate(PAIRS) if i % 3 == 1], seed=1)


def accepted(target, drafter):
    """The acceptance rate over held-out prompts with another seed."""
    runs = generate(target, PAIRS[::9], drafter, max_new_tokens=24, seed=2)
    return sum(run.stats.accepted for run in runs) / sum(run.stats.drafted for run in runs)


def train(parameters, loss):
    optimiser = torch.optim.Adam(parameters, lr=0.02)
    for _ in range(40):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()


def test_training_medusa_raises_the_acceptance_rate(target, sampled):
    heads, hidden = MedusaHeads.random(target, own_head=True, seed=3), score(target, sampled).hidden
    before = accepted(target, Medusa(heads, CHAIN))
    train(heads.parameters(), lambda: medusa_loss(heads(target, hidden), sampled))
    assert accepted(target, Medusa(heads, CHAIN)) > before + 0.1  # .05 → .19


@pytest.mark.parametrize("version", [1, 3])
def test_training_eagle_raises_the_acceptance_rate(target, sampled, version):
    head = EagleHead.random(target, version, seed=4)
    before = accepted(target, Eagle(head, tree=CHAIN))
    output = score(target, sampled, head.config.layers)
    if version == 1:
        train(head.parameters(), lambda: eagle1_loss(head, target, sampled, output.hidden))
    else:
        train(head.parameters(), lambda: eagle3_loss(head, target, sampled, output.layers, output.logits, 3))
    assert accepted(target, Eagle(head, tree=CHAIN)) > before + 0.2  # .20 → .59 and .21 → .55


def test_distilling_a_draft_model_raises_the_acceptance_rate(target, sampled):
    draft = random_model(Config(11, 16, 1, 4, 2, 4, 32, max_length=256), 6, DOUBLE).requires_grad_()
    before, p_logits = accepted(target, DraftModel(draft, 3)), score(target, sampled).logits
    train(draft.parameters(), lambda: distillation_loss(p_logits, score(draft, sampled).logits))
    assert accepted(target, DraftModel(draft, 3)) > before + 0.2  # .22 → .56
