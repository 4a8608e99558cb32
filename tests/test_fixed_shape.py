"""`width`: a token's logits are the same bits in a tree, in a chain and alone, so that greedy texts are equal in bfloat16 too."""

import pytest
import torch
from drafters_under_test import DRAFTERS
from tiny import tiny_model

from specdec.config import Config
from specdec.decoding import Request, generate, rounds, stream
from specdec.distributions import Sampling
from specdec.drafters import DraftModel
from specdec.models import fixed_shape
from specdec.models.fixed_shape import check_width
from specdec.models.transformer import random_model
from specdec.uniforms import Uniforms

GREEDY = Sampling(0)
PROMPT = [1, 2, 3, 1, 2]


def model_of(dtype, seed=0):
    """Large enough that a kernel has something to cut into tiles."""
    return random_model(Config(64, 128, 3, 4, 2, 32, 256, max_length=256), seed, dtype, scale=2.0)


def random_layout(width, generator):
    """A root and a random tree behind it: parents, mask and depths of all `width` rows."""
    parents = [-1] + [int(torch.randint(0, i, (1,), generator=generator)) for i in range(1, width)]
    mask, depths = torch.eye(width, dtype=torch.bool), torch.zeros(width, dtype=torch.long)
    for node in range(1, width):
        mask[node] |= mask[parents[node]]
        depths[node] = depths[parents[node]] + 1
    return parents, mask, depths


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [4, 8, 16])
@torch.inference_mode()
def test_every_node_of_a_tree_has_the_bits_of_its_path_decoded_token_by_token(width, dtype):
    model, generator, context = model_of(dtype), torch.Generator().manual_seed(0), 30
    try:
        check_width(model, model.new_cache(96), width)
    except ValueError as error:
        pytest.skip(str(error))
    differs = 0
    for _ in range(3):
        parents, mask, depths = random_layout(width, generator)
        text, tokens = (torch.randint(0, 64, (1, n), generator=generator) for n in (context, width))
        cache = model.new_cache(96)
        for start in range(0, context, width):
            piece = torch.nn.functional.pad(text[:, start : start + width], (0, width))[:, :width]
            model(piece, cache, fixed=True)
            cache.rollback(min(context, start + width))
        scores = model(tokens, cache, context + depths, mask, fixed=True).logits[0]
        for node in range(width):
            path = [node]
            while path[0]:
                path.insert(0, parents[path[0]])
            cache.rollback(context)
            for i in path:  # one at a time, and the rest of the shape is filled with something else
                length = cache.length
                filled = torch.randint(0, 64, (1, width), generator=generator)
                filled[0, 0] = tokens[0, i]
                alone = model(filled, cache, fixed=True).logits[0, 0]
                cache.rollback(length + 1)
            assert torch.equal(scores[node], alone), f"node {node} at depth {depths[node]}"
            cache.rollback(context)
            differs += not torch.equal(alone, model(tokens[:, path], cache).logits[0, -1])
    assert differs, "the default mode gives the same bits here: the test shows nothing"


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_text_of_every_drafter_in_bfloat16(name, width):
    target = tiny_model(1, 64, layers=3, scale=1.2, dtype=torch.bfloat16)
    drafter = DRAFTERS[name](target)
    if drafter.max_nodes >= width:
        pytest.skip(f"{name} proposes up to {drafter.max_nodes} nodes")
    plain = generate(target, PROMPT, None, GREEDY, 100, width=width)
    assert generate(target, PROMPT, drafter, GREEDY, 100, width=width).tokens == plain.tokens
    assert len(plain.rounds) == 100


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, top_p=0.9)])
def test_a_width_changes_no_law(sampling):
    """In float64, where rounding decides nothing, the text with a width is that without."""
    target = tiny_model(1, 11, layers=3)
    for name in ("draft chain", "draft tree"):
        drafter = DRAFTERS[name](target)
        expected = generate(target, PROMPT, drafter, sampling, 60, seed=3).tokens
        assert generate(target, PROMPT, drafter, sampling, 60, seed=3, width=8).tokens == expected


@pytest.mark.parametrize("name", ["draft chain", "draft tree", "eagle-2 tree", "prompt lookup tree"])
def test_what_lies_in_dropped_slots_changes_nothing(name):
    """A huge number, not NaN: a fixed shape masks what it must not see, and 0 · NaN is NaN."""
    target, longest, width = tiny_model(1, 11, layers=3), 40, 8
    drafter = DRAFTERS[name](target)
    expected = generate(target, PROMPT, drafter, Sampling(), longest - len(PROMPT), seed=3, width=width).tokens
    text, cache = list(PROMPT), target.new_cache(longest + width)
    request = Request(text, longest, drafter.start(target, Sampling(), longest), Uniforms(3), getattr(drafter, "layers", ()))
    for _ in rounds(target, cache, [request], width=width):
        cache.keys[:, :, :, cache.length :], cache.values[:, :, :, cache.length :] = 1e4, -1e4
    assert text[len(PROMPT) :] == expected


def test_long_prompts_go_in_pieces():
    target, prompt = tiny_model(1, 11), [i % 11 for i in range(50)]
    for width in (4, 8, 48, 64):
        assert generate(target, prompt, None, GREEDY, 10, width=width).tokens == generate(target, prompt, None, GREEDY, 10).tokens


def test_the_text_may_end_where_the_context_ends():
    target, prompt = tiny_model(1, 11), [1] * 240  # of 256
    drafter = DraftModel(tiny_model(2, 11, 1), 5)
    assert generate(target, prompt, drafter, GREEDY, 16, width=8).tokens == generate(target, prompt, None, GREEDY, 16).tokens


def test_what_a_width_cannot_do_is_named():
    target = tiny_model(1, 11)
    with pytest.raises(ValueError, match="width = 4 takes one prompt and a drafter of at most 3 nodes, got 1 prompts and 5 nodes"):
        stream(target, PROMPT, DraftModel(target, 5), width=4)
    with pytest.raises(ValueError, match="got 2 prompts"):
        stream(target, [PROMPT, PROMPT], None, width=4)
    with pytest.raises(ValueError, match="got 1 prompts and 0 nodes"):
        stream(target, PROMPT, None, width=0)


def test_a_kernel_that_rounds_by_place_is_found_out(monkeypatch):
    """A product that treats the last row otherwise, as FBGEMM does in shapes of 7 or 32 rows."""
    target = tiny_model(1, 11)
    head = target.head.forward

    def by_place(x):
        y = head(x)
        if x.shape[1] == 8:
            y[:, -1] += 1e-12
        return y

    check_width(target, target.new_cache(16), 4)
    monkeypatch.setattr(target.head, "forward", by_place)
    with pytest.raises(ValueError, match=r"width = 8 would not keep the text; choose another, such as \["):
        check_width(target, target.new_cache(16), 8)


def test_a_width_is_tried_once(monkeypatch):
    target, calls = tiny_model(1, 11), []
    original = fixed_shape._holds
    monkeypatch.setattr(fixed_shape, "_holds", lambda *arguments: calls.append(1) or original(*arguments))
    for _ in range(3):
        generate(target, PROMPT, None, GREEDY, 2, width=4)
    assert len(calls) == 1


