"""Statistics of the benchmark against numbers worked out by hand, and its measurements on tiny models."""

import numpy as np
import pytest
import torch
from drafters_under_test import draft_of, eagle_1, eagle_3
from tiny import probability_table, tiny_model

from specdec import forwards, measure
from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import Combine, DraftModel, Eagle, PromptLookup
from specdec.forwards import forward_costs, seconds_of
from specdec.measure import (
    PLAIN,
    Cost,
    Row,
    Timed,
    acceptance_by_depth,
    compare,
    distributions_of,
    interleaved,
    limits,
    logits_along,
    overlaps_of,
    quartiles,
    rows_of,
    texts_in,
)
from specdec.models.linear import Linear
from specdec.results import Round
from specdec.theory import interpolated_cost, speedup
from specdec.tree import full_tree

GREEDY = Sampling(0)
PROMPTS = [[1, 2, 3, 1, 2], [4, 0, 4, 0]]


def round_of(tokens, accepted=0, drafted=0, last="recovered", seconds=1.0):
    return Round(list(tokens), accepted, drafted, last, seconds)


def test_alpha_by_depth_of_a_list_made_by_hand():
    rounds = [
        round_of([1], 0, 3),
        round_of([1, 2], 1, 3),
        round_of([1, 2, 3, 4], 3, 3, "bonus"),
        round_of([1, 2], 1, 1, "bonus"),  # proposed one token: it says nothing about depth 2
        round_of([1, 2], 2, 3, "accepted"),  # the text ended there: it says nothing about depth 3
        round_of([1], 0, 0, "plain"),
    ]
    alphas, trials = acceptance_by_depth(rounds)
    assert trials == [5, 3, 1], "a round counts at depth d if it proposed d, accepted d - 1, and was not cut behind that"
    assert alphas == pytest.approx([4 / 5, 2 / 3, 1 / 1])


def test_alpha_stops_where_nothing_was_tried():
    assert acceptance_by_depth([round_of([1], 0, 4)]) == ([0.0], [1]), "depth 2 was never reached, so it has no rate"
    assert acceptance_by_depth([]) == ([], [])


def test_tau_is_what_the_alphas_say_for_chains_of_one_length():
    rounds = [round_of([0] * (a + 1), a, 3) for a in (0, 1, 3, 3, 2, 0, 1)]
    alphas, _ = acceptance_by_depth(rounds)
    assert 1 + np.cumprod(alphas).sum() == pytest.approx(sum(len(r.tokens) for r in rounds) / len(rounds))


def fake_samples():
    """Two repeats of one prompt. The machine was twice as slow in the second; first rounds (the prompt's) take 10 s each."""
    texts = {}
    for name, seconds, tokens in ((PLAIN, 1.0, [1]), ("pairs", 1.25, [1, 1])):
        later = [round_of(tokens, len(tokens) - 1, 1, seconds=seconds * slow) for slow in (1, 2)]
        texts[name] = [[[round_of([1], seconds=10.0), *[one] * 4]] for one in later]
    return texts


def test_rates_leave_the_first_round_out_and_ratios_are_of_the_same_repeat():
    rows = rows_of(fake_samples(), greedy=False, costs={})
    assert rows[PLAIN].rates == pytest.approx([1, 0.5])
    assert rows["pairs"].rates == pytest.approx([8 / 5, 8 / 10])
    assert rows["pairs"].ratios == pytest.approx([1.6, 1.6]), "a ratio is over plain decoding of the same repeat"
    assert rows[PLAIN].ratios == pytest.approx([1, 1])
    whole = [(9 / 15) / (5 / 14), (9 / 20) / (5 / 18)]
    assert rows["pairs"].whole == pytest.approx(whole), "the rate of a whole text holds the prompt, on both sides"
    assert rows["pairs"].tau == pytest.approx(18 / 10)
    assert (rows["pairs"].tokens, rows["pairs"].forwards) == (18, 10)


def test_texts_that_part_are_counted_by_prompt_and_only_at_temperature_0():
    def text(*tokens):
        return [round_of([t]) for t in tokens]

    plain = [[text(1, 2), text(3, 4)], [text(1, 2), text(3, 4)]]
    other = [[text(1, 2), text(3, 4)], [text(1, 2), text(3, 5)]]
    silent = [[text(-1, -1), text(-1, -1)]] * 2
    rows = rows_of({PLAIN: plain, "other": other, "silent": silent}, greedy=True, costs={})
    assert (rows[PLAIN].parted, rows["other"].parted, rows["silent"].parted) == (0, 1, None)
    assert rows_of({PLAIN: plain, "other": other}, greedy=False, costs={})["other"].parted is None


def test_a_method_whose_texts_end_at_once_is_named():
    with pytest.raises(ValueError, match="every text of 'fast' ended in its first round"):
        rows_of({PLAIN: fake_samples()[PLAIN], "fast": [[[round_of([1])]]] * 2}, greedy=True, costs={})


def test_everybody_takes_turns_and_another_one_begins_each_repeat():
    calls, advanced = [], []

    def runner(name):
        return lambda prompt, seed: calls.append((name, prompt[0], seed)) or [round_of([1])]

    samples = interleaved({n: runner(n) for n in "abc"}, [[10], [20]], 2, 7, lambda: advanced.append(1))
    first, second = [(n, p, 7) for p in (10, 20) for n in "abc"], [(n, p, 8) for p in (10, 20) for n in "bca"]
    assert calls == first + second
    assert {name: [len(texts) for texts in runs] for name, runs in samples.items()} == {n: [2, 2] for n in "abc"}
    assert len(advanced) == 12


def test_prediction_is_the_formula_of_the_theory():
    alphas, k, c, verify = [0.8, 0.5, 0.4], 3, 0.1, interpolated_cost({1: 0.02, 4: 0.03})
    tau = 1 + 0.8 + 0.8 * 0.5 + 0.8 * 0.5 * 0.4
    row = Row(tau, alphas, [9, 9, 9], 1, 1, [1], [1], [1], None, Cost(draft=k * c, nodes=k, verify=verify(k)))
    assert row.predicted == pytest.approx(speedup(alphas, k, c, verify))


class Clock:
    """Time passes by one second each time that somebody looks."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += 1
        return self.now


def test_a_timed_drafter_changes_no_text_and_counts_seconds_and_nodes():
    target = tiny_model(0, vocab_size=5)
    drafter = Combine(Eagle(eagle_3(target), depth=2, top_k=2, budget=4), PromptLookup(1, 2))
    timed = Timed(drafter, Clock())
    runs = [generate(target, prompt, timed, GREEDY, 20) for prompt in PROMPTS]
    assert [run.tokens for run in runs] == [generate(target, prompt, drafter, GREEDY, 20).tokens for prompt in PROMPTS]
    rounds = [round for text in timed.texts for round in text]
    assert len(timed.texts) == 2
    assert all(len(run.rounds) - len(text) in (0, 1) for run, text in zip(runs, timed.texts)), "only the last may draft nothing"
    assert all(seconds in (2, 3) for seconds, _ in rounds), "a round is a `propose` and the `observe` behind it; no prompt"
    later = [round for text in timed.texts for round in text[1:]]
    cost = timed.cost(4.0, lambda nodes: 1 + nodes)
    assert cost.draft == pytest.approx(sum(s for s, _ in later) / len(later) / 4)
    assert cost.nodes == pytest.approx(sum(n for _, n in later) / len(later))
    assert cost.verify == pytest.approx(1 + cost.nodes)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling()])
def test_compare_on_a_tiny_model(sampling):
    target, advanced = tiny_model(0, vocab_size=5), []
    methods = {PLAIN: None, "itself": DraftModel(target, 3), "prompt-lookup": PromptLookup(2, 3)}
    more = {"verify": lambda k: 1 + k / 10, "advance": lambda: advanced.append(1)}
    rows, texts = compare(target, methods, PROMPTS, sampling, 24, repeats=3, seed=5, **more)
    assert list(rows) == list(methods)
    assert len(advanced) == texts_in(3, 2, 3)
    assert texts == [generate(target, prompt, None, sampling, 24, seed=5).tokens for prompt in PROMPTS]
    assert rows[PLAIN].tau == 1
    assert rows[PLAIN].ratios == [1, 1, 1]
    assert rows["itself"].alphas == pytest.approx([1, 1, 1]), "a draft that is the target is never rejected"
    assert rows["itself"].tau == pytest.approx(4, abs=0.2)
    assert rows["itself"].parted == (0 if sampling.greedy else None)
    cost = rows["itself"].cost
    assert rows["itself"].predicted == pytest.approx(rows["itself"].tau / (cost.draft + cost.verify))
    assert 2.5 < cost.nodes <= 3
    assert rows[PLAIN].cost is None


def test_the_time_of_drafting_is_counted_in_plain_steps(monkeypatch):
    rounds, steps = [round_of([1], seconds=seconds) for seconds in (9.0, 0.25, 0.25)], []
    monkeypatch.setattr(measure, "stream", lambda *_: rounds)
    monkeypatch.setattr(Timed, "cost", lambda self, step, verify: steps.append(step) or Cost(0.5, 3, 1.5))
    rows, _ = compare(tiny_model(0), {PLAIN: None, "x": PromptLookup()}, [[1]], GREEDY, verify=lambda k: 1.5)
    assert steps == [0.25], "a plain step is a round of plain decoding, the prompt's left out"
    assert rows["x"].predicted == 1 / (0.5 + 1.5)


def test_compare_says_what_is_missing():
    target = tiny_model(0)
    with pytest.raises(ValueError, match="need plain decoding, 'none': None"):
        compare(target, {"prompt-lookup": PromptLookup()}, [[1]], GREEDY)
    with pytest.raises(ValueError, match="at least one prompt and one repeat are needed, got 1 and 0"):
        compare(target, {PLAIN: None}, [[1]], GREEDY, repeats=0)


def test_cases_take_turns_and_the_first_turn_is_forgotten(monkeypatch):
    clock, order = Clock(), []
    monkeypatch.setattr(measure.time, "perf_counter", clock)
    slow = iter([100, 5, 1, 3])

    def call(name, seconds):
        order.append(name)
        clock.now += seconds

    found = seconds_of({"a": lambda: call("a", next(slow)), "b": lambda: call("b", 1)}, 3, torch.device("cpu"))
    assert order == list("abababab")
    assert found == {"a": [5 + 1, 1 + 1, 3 + 1], "b": [1 + 1] * 3}


def test_forward_costs_measure_every_width_and_leave_the_context_alone():
    target, seen = tiny_model(0), []

    def watch(module, arguments, output):
        seen.append((arguments[0].shape[1], arguments[1].lengths[0]))

    handle = target.register_forward_hook(watch)
    found = forward_costs(target, widths=(1, 3), context=10, repeats=2)
    handle.remove()
    assert list(found) == [1, 3]
    assert all(cost.seconds > 0 and cost.products > 0 for cost in found.values())
    assert seen == [(10, 10), *[(1, 11), (3, 13)] * 3], "every forward runs behind 10 tokens"


def test_the_products_are_those_of_a_forward():
    """Every linear layer once, on as many rows."""
    target, seen = tiny_model(0), []
    for name, module in target.named_modules():
        if isinstance(module, Linear):
            module.register_forward_hook(lambda _, arguments, __, name=name: seen.append((name, arguments[0].shape[-2:])))
    with torch.inference_mode():
        target(torch.zeros(1, 3, dtype=torch.long), target.new_cache(3))
        forward, _ = sorted(seen), seen.clear()
        forwards._products(target, 3)()
    assert sorted(seen) == forward, "left: what was timed; right: what a forward runs"


def table_overlap(target, q_of, text, sampling):
    """Σ min(p, q) at each new token, each from a fresh forward."""
    p, (prompt, new) = probability_table(target, sampling), text
    prefixes = [tuple(prompt + new[:i]) for i in range(len(new))]
    return [np.minimum(p(prefix), q_of(prefix)).sum() for prefix in prefixes]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, top_p=0.9)])
def test_overlap_of_a_draft_model_is_that_of_fresh_forwards(sampling):
    target = tiny_model(0, vocab_size=5)
    draft, text = draft_of(target), (PROMPTS[0], generate(target, PROMPTS[0], None, sampling, 12).tokens)
    found = overlaps_of(target, DraftModel(draft, 1), text, sampling)
    assert found == pytest.approx(table_overlap(target, probability_table(draft, sampling), text, sampling), abs=1e-6)


@pytest.mark.parametrize("head_of", [eagle_1, eagle_3])
def test_overlap_of_a_head_is_what_it_declares_in_a_generation_that_stands_there(head_of):
    """A fresh proposer behind each prefix, which has seen the prefix as its prompt."""
    target, sampling = tiny_model(0, vocab_size=6, layers=3), Sampling()
    drafter, text = Eagle(head_of(target), tree=[-1]), (PROMPTS[0], generate(target, PROMPTS[0], None, sampling, 8).tokens)

    class Spy(Timed):
        def start(self, *arguments):
            proposer = super().start(*arguments)
            propose = proposer.propose

            def spying(*given):
                self.texts.append(propose(*given))
                return self.texts[-1]

            proposer.propose = spying
            return proposer

    def q_of(prefix):
        spy = Spy(drafter)
        generate(target, list(prefix), spy, sampling, 2)
        return next(tree for tree in spy.texts if not isinstance(tree, list)).q[0].double().numpy()

    assert overlaps_of(target, drafter, text, sampling) == pytest.approx(table_overlap(target, q_of, text, sampling), abs=1e-6)


def test_limits_leave_out_what_has_no_q_and_know_the_target():
    target, sampling = tiny_model(0, vocab_size=5), Sampling()
    texts = [(prompt, generate(target, prompt, None, sampling, 10).tokens) for prompt in PROMPTS]
    drafters = {
        PLAIN: None,
        "itself": DraftModel(target, 4),
        "tree": Eagle(eagle_1(target), depth=2, top_k=2, budget=3),
        "shape": Eagle(eagle_1(target), tree=full_tree([2, 1])),
        "prompt-lookup": PromptLookup(),
    }
    found = limits(target, drafters, texts, sampling)
    assert list(found.overlaps) == ["itself", "tree", "shape"]
    assert found.overlaps["itself"] == pytest.approx(1, abs=1e-6), "Σ min(p, p) = 1"
    assert found.overlaps["tree"] == found.overlaps["shape"], "both are the same head's q"
    p = probability_table(target, sampling)
    rows = np.array([p(tuple(prompt + new[:i])) for prompt, new in texts for i in range(len(new))])
    assert found.entropy == pytest.approx(-(rows * np.log(rows)).sum(-1).mean(), abs=1e-6)
    assert found.largest == pytest.approx(rows.max(-1).mean(), abs=1e-6)
    with pytest.raises(ValueError, match="proposes without a q"):
        overlaps_of(target, PromptLookup(1, 2), ([1, 1], [1, 1, 1]), sampling)


def test_quartiles():
    assert quartiles([5, 1, 2, 4, 3]) == (2, 3, 4)


def test_logits_along_a_text_are_those_of_its_distributions_at_any_temperature():
    target, draft = tiny_model(0, vocab_size=5), tiny_model(1, vocab_size=5)
    texts = [([1, 2, 3], [0, 4, 1]), ([4, 0], [2, 2])]
    own, of_model, of_drafter = (logits_along(target, source, texts) for source in (target, draft, DraftModel(draft, 1)))
    for sampling in (Sampling(), Sampling(0.5)):
        p, q = map(torch.cat, zip(*(distributions_of(target, DraftModel(draft, 1), text, sampling) for text in texts)))
        for logits, probabilities in ((own, p), (of_model, q), (of_drafter, q)):
            found = sampling.probabilities(logits.double())
            torch.testing.assert_close(found, probabilities.double(), atol=1e-6, rtol=1e-5)
