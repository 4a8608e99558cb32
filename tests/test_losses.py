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
from specdec.training.losses import distillation_loss, eagle1_loss, eagle3_loss, medusa_loss, rollout
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
