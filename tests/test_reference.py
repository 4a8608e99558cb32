"""The one page that is read first is exact by itself, and says what the general loop does."""

import inspect

import pytest
from test_exactness import SAMPLINGS, table_of
from tiny import EnumeratedUniforms, probability_table, reference_law, tiny_model

from specdec import Sampling, generate, reference
from specdec.drafters import DraftModel
from specdec.law import law, law_distance

PROMPT, LENGTH = (0, 2, 0, 2, 1, 0), 3


def distance(k, sampling, edge):
    """TV between the law of three tokens, all rounds enumerated, and the target's own."""
    target, draft = tiny_model(1), tiny_model(2, layers=1)
    p, table = probability_table(target, sampling), table_of(draft, sampling)

    def program(choose):
        committed, parents = list(PROMPT), range(-1, k - 1)
        models = [(model, model.new_cache(len(PROMPT) + LENGTH)) for model in (target, draft)]
        while (room := len(PROMPT) + LENGTH - len(committed)) > 0:
            source = EnumeratedUniforms(choose, committed, p, table, parents, "without_replacement", edge)
            committed += reference.speculative_round(*models, committed, min(k, room - 1), sampling, source)
        return tuple(committed[len(PROMPT) :])

    return law_distance(law(program), reference_law(p, PROMPT, LENGTH))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("k", [0, 1, 2])
def test_the_page_has_the_targets_law(k, sampling):
    for edge in (0, 1):
        assert distance(k, sampling, edge) < 1e-12, f"with K = {k} the page changes the target's distribution"


@pytest.mark.parametrize("part", ["residual", "bonus", "coin"])
def test_negative_control_the_page_with_a_part_exchanged(part, monkeypatch):
    """Recovered tokens from p, a bonus token from q, coins that are turned round: each is seen."""
    source = inspect.getsource(reference)
    right, wrong = {
        "residual": ("residual(p[accepted], q[accepted]) if", "p[accepted] if"),
        "bonus": ("else p[k]", "else p[k] if k == 0 else q[k - 1]"),
        "coin": ("coins[accepted] *", "(1 - coins[accepted]) *"),
    }[part]
    assert source.count(right) == 1, "the page has changed: exchange its part anew"
    names: dict = {"__name__": "wrong page"}
    exec(compile(source.replace(right, wrong), "wrong page", "exec"), names)
    monkeypatch.setattr(reference, "speculative_round", names["speculative_round"])
    assert max(distance(2, Sampling(), edge) for edge in (0, 1)) > 1e-3


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("k", [0, 1, 3])
def test_generate_emits_what_the_page_does(k, sampling):
    target, draft = tiny_model(1, vocab_size=23, scale=2.0), tiny_model(2, vocab_size=23, layers=1, scale=2.0)
    for seed in range(3):
        page = reference.speculative_decode(target, draft, PROMPT, k, sampling, 30, seed)
        loop = generate(target, list(PROMPT), DraftModel(draft, k), sampling, 30, seed=seed)
        assert page == loop.tokens


def test_a_round_needs_one_forward_of_the_target(monkeypatch):
    target, draft = tiny_model(1), tiny_model(1)  # a draft that is always right
    lengths, real = [], type(target).forward
    monkeypatch.setattr(
        type(target),
        "forward",
        lambda self, tokens, *a, **k: (lengths.append((self, tokens.shape[1])), real(self, tokens, *a, **k))[1],
    )
    assert len(reference.speculative_decode(target, draft, PROMPT, 4, Sampling(0), 20)) == 20
    assert [length for model, length in lengths if model is target] == [len(PROMPT) + 4, 5, 5, 5]


def test_the_page_fits_on_one_screen():
    """A round is read without scrolling: it may not grow."""
    lines, _ = inspect.getsourcelines(reference.speculative_round)
    assert len(lines) <= 40
