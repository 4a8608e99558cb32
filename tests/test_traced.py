"""Traced layers: the same numbers to the last bit as Python makes of them, for every view, and only where they pay."""

import copy
import gc
import weakref

import pytest
import torch

from specdec.config import Config
from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import Eagle, EagleHead
from specdec.models.traced import Traces
from specdec.models.transformer import random_model

CONFIG = Config(vocab_size=40, hidden_size=32, layers=3, heads=4, kv_heads=2, head_dim=8, ffn_size=48, max_length=64)


@pytest.fixture
def model():
    made = random_model(CONFIG, seed=3, scale=2.0)
    made.traces = Traces()
    return made


def tree_mask(T):
    """Everybody sees the root and itself."""
    mask = torch.eye(T, dtype=torch.bool)
    mask[:, 0] = True
    return mask


def some_tokens(B, T, seed):
    return torch.randint(CONFIG.vocab_size, (B, T), generator=torch.Generator().manual_seed(seed))


def filled(model, lengths, slots=40):
    """A cache with rows of these lengths."""
    cache = model.new_cache(slots, len(lengths))
    with torch.no_grad():
        model(some_tokens(len(lengths), max(lengths), 0), cache)
    cache.rollback(lengths)
    return cache


# name → (lengths of the rows, new tokens, mask, more)
CASES = {
    "one token": ([5], 1, None, {}),
    "a chain": ([5], 4, None, {}),
    "a longer chain behind a longer text": ([9], 6, None, {}),
    "a tree": ([7], 5, tree_mask(5), {}),
    "inner layers": ([7], 5, tree_mask(5), {"layers": (0, 2)}),
    "one inner layer": ([7], 5, tree_mask(5), {"layers": (1,)}),
    "a batch": ([6, 6], 3, None, {}),
    "a larger batch": ([6, 6, 6], 1, None, {}),
    "rows of different lengths": ([6, 3, 8], 2, None, {}),
    "a tree for each row": ([6, 3], 4, torch.stack([tree_mask(4), torch.ones(4, 4, dtype=torch.bool).tril()]), {}),
    "a fixed shape": ([5], 8, None, {"fixed": True}),
    "a smaller one": ([5], 4, None, {"fixed": True}),
    "a tree in a fixed shape": ([9], 8, tree_mask(8), {"fixed": True}),
}


def output_of(model, lengths, T, mask, more, slots=40):
    cache = filled(model, lengths, slots)
    with torch.no_grad():
        output = model(some_tokens(len(lengths), T, 1), cache, mask=mask, **more)
    inner = [] if output.layers is None else [output.layers]
    return [output.logits, output.hidden, *inner, cache.keys, cache.values, torch.tensor(cache.lengths)]


def differences(model, plain):
    """The names of the cases in which a model that has seen all others before, over another cache, differs from one without traces."""
    for case in CASES.values():
        output_of(model, *case)
    pairs = {name: zip(output_of(model, *case, 52), output_of(plain, *case, 52), strict=True) for name, case in CASES.items()}
    return [name for name, outputs in pairs.items() if not all(torch.equal(a, b) for a, b in outputs)]


def without_traces(model):
    plain = copy.copy(model)
    plain.traces = None
    return plain


def test_traced_layers_compute_the_same_bits(model):
    assert differences(model, without_traces(model)) == [], "a trace differs from what Python computes"


def test_control_a_trace_that_forgets_which_layers_are_kept_is_seen(model):
    class Forgetful(Traces):
        def run(self, module, inputs, seen, kept):
            return super().run(module, inputs, seen, tuple([1] * len(kept)))

    model.traces = Forgetful()
    assert differences(model, without_traces(model)) == ["inner layers"]


def test_a_fixed_shape_is_not_traced(model):
    """It names sizes: a trace of one width would be wrong at another."""
    output_of(model, *CASES["a fixed shape"])
    assert not model.traces._made


def test_python_runs_no_layer_once_a_trace_is_made(model):
    calls = []
    for layer in model.layers:
        layer.register_forward_hook(lambda *_: calls.append(1))
    cache = filled(model, [5])
    with torch.no_grad():
        model(some_tokens(1, 1, 2), cache)
        before = len(calls)
        model(some_tokens(1, 1, 2), cache)
    assert before > 0, "nothing was traced: the hooks never ran"
    assert len(calls) == before, "Python ran layers although there is a trace"


def test_no_trace_is_made_where_a_gradient_may_be_wanted_nor_of_a_prompt(model):
    with torch.enable_grad():
        model(some_tokens(1, 1, 2), filled(model, [5]))
    assert not model.traces._made, "filled ran a prompt, and a gradient was enabled"
    output_of(model, *CASES["one token"])
    assert model.traces._made


def test_a_copy_makes_traces_of_its_own(model):
    before = output_of(model, *CASES["one token"])[0]
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.layers[0].ffn.down.weight.mul_(2)
    assert not torch.equal(output_of(other, *CASES["one token"])[0], before), "the copy runs with the weights of the first"


def test_a_trace_does_not_keep_its_model_alive():
    made = random_model(CONFIG, seed=3)
    made.traces = Traces()
    output_of(made, *CASES["one token"])
    refs = [weakref.ref(x) for x in (made, made.layers[0], made.layers[0].ffn.down.weight)]
    del made
    gc.collect()
    assert not [ref for ref in refs if ref() is not None], "memory of a model that is gone is not freed"


@pytest.mark.parametrize("options", [{"depth": 3, "top_k": 2, "budget": 5}, {"tree": [-1, -1, 0, 1]}], ids=["dynamic", "static"])
@pytest.mark.parametrize("sampling", [Sampling(0), Sampling(1.0)], ids=["greedy", "drawn"])
def test_eagle_writes_the_same_text_with_traces(model, options, sampling):
    head = EagleHead.random(model, 3, seed=1)
    texts = [
        generate(target, [1, 2, 3], Eagle(head, **options), sampling, max_new_tokens=24).tokens for target in (model, without_traces(model))
    ]
    assert texts[0] == texts[1], "with traces the head drafted, or the target scored, something else"
    assert head.traces._made, "the head has made no trace"
