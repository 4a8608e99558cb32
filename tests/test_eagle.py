"""Eagle: the layer against the papers' formulas, trees against a reference that runs every path from scratch, the cache after every
round, texts against plain decoding, errors, and the stored heads."""

import json
import math
from copy import deepcopy

import pytest
import torch
from safetensors import safe_open
from tiny import tiny_model

from specdec import decoding
from specdec.config import Config
from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import Eagle, EagleConfig, EagleHead, eagle
from specdec.drafters.base import Outcome
from specdec.drafters.eagle import _most_confident
from specdec.drafters.eagle_head import fused_layers
from specdec.models.attention import view
from specdec.models.errors import CheckpointError
from specdec.tree import TokenTree, full_tree
from specdec.uniforms import Purpose, Uniforms

GREEDY = Sampling(0)
PROMPT = [1, 2, 3, 1, 2]
SOME = [1, 3, 4, 5, 8, 9]
TREES = {
    "bushy": {"depth": 3, "top_k": 3, "budget": 9}, "wide": {"depth": 2, "top_k": 5, "budget": 20},
    "deep": {"depth": 5, "top_k": 2, "budget": 7}, "chain": {"depth": 4, "top_k": 1, "budget": 4},
    "one": {"depth": 3, "top_k": 3, "budget": 1}, "all": {"depth": 3, "top_k": 2, "budget": 99},
    "static": {"tree": full_tree([3, 2, 1])}, "sparse": {"tree": [-1, -1, -1, 0, 0, 2, 3, 5]}, "static chain": {"tree": full_tree([1] * 4)},
}  # fmt: skip
DYNAMIC = [name for name, options in TREES.items() if "depth" in options]
STATIC = [name for name, options in TREES.items() if "tree" in options]
HEADS = {"version 1": (1, None), "version 3": (3, None), "version 3, reduced": (3, SOME)}


@pytest.fixture(scope="module")
def target():
    return tiny_model(1, vocab_size=11, scale=1.5)


@pytest.fixture(scope="module")
def heads(target):
    return {name: EagleHead.random(target, version, ids=ids, seed=2) for name, (version, ids) in HEADS.items()}


@pytest.fixture(scope="module")
def plain(target):
    return {len(prompt): generate(target, prompt, None, GREEDY, max_new_tokens=100).tokens for prompt in (PROMPT, [4])}


# The slow twins.


def slow_feature(head, target, text, path):
    """The head's own feature behind text and path: a fresh prefill of the target, a fresh cache of the head, pair after pair."""
    output = target(torch.tensor([text]), target.new_cache(), layers=head.config.layers)
    known = head.features(output.hidden, output.layers)[0]
    cache, own = head.new_cache(len(text) + len(path)), None
    for position in range(len(text) - 1 + len(path)):
        feature, token = (known[position], text[position + 1]) if position < len(text) - 1 else (own, path[position - len(text) + 1])
        own = head(target, torch.tensor([[token]]), feature.view(1, 1, -1), view(cache, 1, None, False), torch.tensor([position]))[0, 0]
    return own


def slow_logits(head, target, text, path):
    """(V,), -inf where the head does not score."""
    scored = head.logits(target, slow_feature(head, target, text, path)).tolist()
    ids = range(11) if head.config.version == 1 else head.ids.tolist()
    everywhere = [-math.inf] * 11
    for token, value in zip(ids, scored, strict=True):
        everywhere[token] = value
    return torch.tensor(everywhere, dtype=torch.float64)


def slow_dynamic(head, target, text, depth, top_k, budget):
    """EAGLE-2 from its description. Returns all drafted (path, confidence), and those that are kept, both in order."""
    drafted, expand = [], [((), 0.0)]
    for _ in range(depth):
        level = []
        for path, confidence in expand:
            chances = slow_logits(head, target, text, path).log_softmax(0).tolist()
            for token in sorted(range(11), key=lambda token: -chances[token])[:top_k]:
                level.append(((*path, token), confidence + chances[token]))
        drafted += level
        expand = sorted(level, key=lambda node: -node[1])[:top_k]
    best = sorted(drafted, key=lambda node: -node[1])[:budget]
    return drafted, [node for node in drafted if node in best]


def paths_of(tokens, parents):
    paths = []
    for token, parent in zip(tokens.tolist(), parents.tolist(), strict=True):
        assert -1 <= parent < len(paths), "a parent must come before its children"
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


def proposer_after(drafter, target, text, sampling=GREEDY):
    """A proposer that has seen the whole text as a prompt."""
    proposer = drafter.start(target, sampling, 60)
    output = target(torch.tensor([text[:-1]]), target.new_cache(), layers=drafter.layers)
    inner = output.layers[0] if drafter.layers else None
    proposer.observe(Outcome([], TokenTree.empty(), output.logits[0, :0], output.hidden[0], inner))
    return proposer


# The layer.


def slow_attention(attention, config, inputs):
    """Causal attention in plain loops; the rotation as a product of complex numbers."""
    heads, kv_heads, d = config.heads, config.kv_heads, config.head_dim
    projected = [attention.qkv.weight @ x for x in inputs]

    def turned(vector, position):
        pairs = torch.complex(vector[: d // 2], vector[d // 2 :])
        angles = torch.tensor([position * config.rope_theta ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
        pairs = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([pairs.real, pairs.imag])

    def part(position, number):
        return projected[position][number * d : (number + 1) * d]

    outputs = []
    for t in range(len(inputs)):
        mixed = []
        for head in range(heads):
            group = head // (heads // kv_heads)
            q = turned(part(t, head), t)
            scores = torch.stack([q @ turned(part(s, heads + group), s) / d**0.5 for s in range(t + 1)]).softmax(0)
            mixed.append(sum(score * part(s, heads + kv_heads + group) for s, score in enumerate(scores)))
        outputs.append(attention.out.weight @ torch.cat(mixed))
    return outputs


def slow_norm(norm, x):
    return x / (x.square().mean() + 1e-5).sqrt() * norm.weight


def slow_ffn(ffn, x):
    gate, up = (ffn.gate_up.weight @ x).split(len(ffn.gate_up.weight) // 2)
    return ffn.down.weight @ (gate / (1 + (-gate).exp()) * up)


@pytest.mark.parametrize("version", [1, 3])
@torch.inference_mode()
def test_the_layer_computes_the_papers_formulas(target, heads, version):
    head, config = deepcopy(heads[f"version {version}"]), target.config
    for name, weight in head.named_parameters():
        if "norm" in name:  # all ones would hide which is which
            weight.copy_(torch.linspace(0.5, 1.5, 16) + len(name) % 3)
    output = target(torch.tensor([PROMPT]), target.new_cache(), layers=head.config.layers)
    embeddings = [target.embedding.weight[token] for token in PROMPT[1:]]
    if version == 1:
        features = list(output.hidden[0, :-1])
        join = head.body.join
        x = [join.weight @ torch.cat([e, f]) + join.bias for e, f in zip(embeddings, features, strict=True)]
        layer = head.body.layer
        inputs = [slow_norm(layer.attention_norm, one) for one in x]
    else:
        assert head.config.layers == (0, 0, 1)
        features = [head.fuse.weight @ row for row in output.layers[0, :-1]]
        x, layer = features, head.body
        inputs = [
            torch.cat([slow_norm(layer.embedding_norm, e), slow_norm(layer.feature_norm, f)])
            for e, f in zip(embeddings, features, strict=True)
        ]
    x = [a + b for a, b in zip(x, slow_attention(layer.attention, config, inputs), strict=True)]
    x = [one + slow_ffn(layer.ffn, slow_norm(layer.ffn_norm, one)) for one in x]
    own = slow_feature(head, target, PROMPT, [])
    torch.testing.assert_close(own, x[-1], rtol=0, atol=1e-5)  # the rotary tables are float32
    logits = target.head.weight @ own if version == 1 else head.head.weight @ slow_norm(head.norm, own)
    torch.testing.assert_close(head.logits(target, own), logits, rtol=0, atol=1e-12)


def test_spread_puts_every_scored_token_in_its_place(heads):
    head, logits = heads["version 3, reduced"], torch.randn(2, 3, 6, dtype=torch.float64)
    full = head.spread(logits)
    assert full.shape == (2, 3, 11)
    for token in range(11):
        expected = logits[..., SOME.index(token)] if token in SOME else torch.full((2, 3), -math.inf, dtype=torch.float64)
        assert torch.equal(full[..., token], expected)
    assert head.target_ids(torch.arange(6)).tolist() == SOME


# Trees.


@pytest.fixture(params=[True, False], ids=["in lists", "tensors"])
def way(request, monkeypatch):
    monkeypatch.setattr(eagle, "on_host", lambda device: request.param)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", DYNAMIC)
@torch.inference_mode()
def test_the_dynamic_tree_equals_a_recursive_reference(target, heads, kind, name, way):
    """Tokens, parents and order of the kept nodes; tokens, parents and confidence of all that were drafted."""
    for text in (PROMPT, [4, 7], [9, 9, 0, 5, 3, 10, 6]):
        proposer, seen = proposer_after(Eagle(heads[kind], **TREES[name]), target, text), []
        original = proposer._keep
        proposer._keep = lambda *drafted, original=original, seen=seen: seen.extend(drafted) or original(*drafted)
        tree = proposer.propose(text, 10, Uniforms(0))
        options = TREES[name] | {"depth": min(TREES[name]["depth"], TREES[name]["budget"])}
        drafted, kept = slow_dynamic(heads[kind], target, text, **options)
        tokens, parents, confidence = *map(torch.as_tensor, seen[:2]), torch.as_tensor(seen[2], dtype=torch.float64)
        assert paths_of(tokens, parents) == [path for path, _ in drafted]
        torch.testing.assert_close(confidence, torch.tensor([c for _, c in drafted], dtype=torch.float64), rtol=0, atol=1e-11)
        assert paths_of(tree.tokens, tree.parents) == [path for path, _ in kept]
        assert tree.q is None
        assert len(tree) == min(TREES[name]["budget"], len(drafted)) <= Eagle(heads[kind], **TREES[name]).max_nodes
        assert tree.is_chain or name != "chain"
        assert proposer.cache.length == len(text) - 1, "drafted nodes must leave the cache"


@torch.inference_mode()
def test_every_budget_keeps_the_most_confident_nodes(target, heads, way):
    head = heads["version 1"]
    for budget in (1, 2, 3, 4, 6, 10, 15, 20, 21, 25):
        tree = proposer_after(Eagle(head, 3, 3, budget), target, PROMPT).propose(PROMPT, 10, Uniforms(0))
        _, kept = slow_dynamic(head, target, PROMPT, min(3, budget), 3, budget)
        assert paths_of(tree.tokens, tree.parents) == [path for path, _ in kept]


def test_on_ties_the_earlier_node_is_kept():
    confidence = torch.zeros(500)
    confidence[400:] = 1
    assert _most_confident(confidence, 150).tolist() == [*range(400, 500), *range(50)]


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(0.6, top_p=0.9)])
@torch.inference_mode()
def test_the_static_tree_declares_the_q_that_it_drew_from(target, heads, kind, name, sampling):
    head, uniforms, shape = heads[kind], Uniforms(4), TREES[name]["tree"]
    tree = proposer_after(Eagle(head, tree=shape), target, PROMPT, sampling).propose(PROMPT, 10, uniforms)
    assert tree.parents.tolist() == shape
    u, paths = uniforms.draw(Purpose.DRAFT, len(PROMPT), len(shape)), paths_of(tree.tokens, tree.parents)
    for node, parent in enumerate(shape):
        logits = slow_logits(head, target, PROMPT, paths[parent] if parent >= 0 else ())
        elder = [tree.tokens[i].item() for i in range(node) if shape[i] == parent]
        token = tree.tokens[node].item()
        if sampling.greedy:
            assert tree.q is None
            assert token == logits.argsort(descending=True)[len(elder)]
            continue
        q = sampling.probabilities(logits)
        torch.testing.assert_close(tree.q[parent + 1], q, rtol=0, atol=1e-11)
        q[elder] = 0
        if q.sum() > 0:
            cdf = q.cumsum(0) / q.sum()
            assert cdf[token] - q[token] / q.sum() - 1e-9 <= u[node] <= cdf[token] + 1e-9
    assert tree.q is None or tree.q.shape == (len(shape) + 1, 11)


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("limit", [1, 2])
@torch.inference_mode()
def test_the_limit_cuts_the_depth(target, heads, name, limit):
    head, drafter = heads["version 3"], Eagle(heads["version 3"], **TREES[name])
    tree = proposer_after(drafter, target, PROMPT).propose(PROMPT, limit, Uniforms(0))
    whole = len(drafter.shape.levels) if drafter.shape else min(drafter.depth, drafter.budget)
    assert tree.depth == min(limit, whole)
    if drafter.shape is None:
        options = TREES[name] | {"depth": tree.depth}
        assert paths_of(tree.tokens, tree.parents) == [path for path, _ in slow_dynamic(head, target, PROMPT, **options)[1]]


# The state.


class Mixed:
    """Every second tree is the drafter's own; the others are chains out of `text`, wrong from the third token on. The prompt's
    features reach the drafter as ever, and so does what becomes of trees that it never made."""

    def __init__(self, drafter, text):
        self.drafter, self.text, self.layers, self.max_nodes, self.rounds = drafter, text, drafter.layers, max(drafter.max_nodes, 3), 0

    def start(self, *arguments):
        self.proposer = self.drafter.start(*arguments)
        return self

    def propose(self, committed, limit, uniforms):
        self.rounds += 1
        if self.rounds % 2:
            return self.proposer.propose(committed, limit, uniforms)
        following = self.text[len(committed) :][: min(limit, 3)]
        return TokenTree.chain([token if i < 2 else (token + 1) % 11 for i, token in enumerate(following)])

    def observe(self, outcome):
        self.proposer.observe(outcome)


def check_every_round(target, drafter, prompt, sampling, proposer, mine, longest=30):
    """After rounds, with every slot beyond the cache's length poisoned, the head's next logits are those of a fresh run."""
    committed, accepted = list(prompt), []
    request = decoding.Request(committed, longest, proposer, Uniforms(3), drafter.layers)
    for (round,) in decoding.rounds(target, target.new_cache(longest + max(3, drafter.max_nodes)), [request], sampling):
        accepted.append(round.accepted)
        cache = mine.cache
        assert cache.length <= len(committed) - 1, "the cache may hold pairs of committed tokens only"
        cache.keys[:, :, :, cache.length :], cache.values[:, :, :, cache.length :] = float("nan"), float("nan")
        if len(committed) % 3 == 0:  # at other times `propose` has to catch up by itself, over several rounds' features too
            mine._catch_up(committed)
            fresh = slow_feature(drafter.head, target, committed, [])
            torch.testing.assert_close(mine.root[0], fresh, rtol=0, atol=1e-11)
    return accepted


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", ["wide", "chain", "static", "static chain"])
@torch.inference_mode()
def test_after_every_round_the_head_equals_a_fresh_run(target, heads, kind, name):
    drafter, prompt = Eagle(heads[kind], **TREES[name]), [4] if name == "static" else PROMPT
    proposer = drafter.start(target, Sampling(), 30)
    accepted = check_every_round(target, drafter, prompt, Sampling(), proposer, proposer)
    assert 0 in accepted
    assert name == "chain" or len(set(accepted)) >= 2, "rounds must differ in what they accept"


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", ["wide", "static"])
@torch.inference_mode()
def test_accepted_tokens_may_come_from_another_drafter(target, heads, plain, kind, name):
    text, drafter = PROMPT + plain[len(PROMPT)][:25], Eagle(heads[kind], **TREES[name])
    mixed = Mixed(drafter, text).start(target, GREEDY, 30)
    accepted = check_every_round(target, drafter, PROMPT, GREEDY, mixed, mixed.proposer)
    assert max(accepted) >= 2
    assert generate(target, PROMPT, Mixed(drafter, text), GREEDY, max_new_tokens=25).tokens == text[len(PROMPT) :]


@torch.inference_mode()
def test_proposing_twice_gives_the_same_tree(target, heads):
    for name, options in TREES.items():
        proposer = proposer_after(Eagle(heads["version 1"], **options), target, PROMPT, Sampling())
        first, second = (proposer.propose(PROMPT, 10, Uniforms(0)) for _ in range(2))
        assert first.tokens.tolist() == second.tokens.tolist(), name
        assert first.parents.tolist() == second.parents.tolist(), name


@pytest.mark.parametrize(("name", "kind"), [
    *((name, "version 3, reduced") for name in TREES), ("bushy", "version 1"), ("static", "version 1"),
])  # fmt: skip
def test_propose_asks_the_device_for_nothing(kind, name):
    """On the meta device a tensor has no values: every copy to the host is an error."""
    target = tiny_model(1, vocab_size=11).to("meta")
    version, ids = HEADS[kind]
    drafter = Eagle(EagleHead.random(target, version, ids=ids), **TREES[name])
    for sampling in (GREEDY, Sampling(0.7, top_p=0.9)):
        proposer = drafter.start(target, sampling, 20)
        hidden, layers = (torch.empty(4, n, dtype=torch.float64, device="meta") for n in (16, 48))
        proposer.observe(Outcome([], TokenTree.empty("meta"), torch.empty(0, 11), hidden, layers))
        tree = proposer.propose(PROMPT, 10, Uniforms(0))
        assert tree.tokens.device.type == "meta"
        assert len(tree) == drafter.max_nodes


# Texts.


@pytest.mark.parametrize(("name", "kind"), [
    *((name, "version 3, reduced") for name in TREES), ("bushy", "version 1"), ("static", "version 1"), ("bushy", "version 3"),
])  # fmt: skip
def test_greedy_text_is_that_of_plain_decoding(target, heads, plain, kind, name):
    drafter = Eagle(heads[kind], **TREES[name])
    for prompt, length in ((PROMPT, 100), ([4], 30)):
        drafted = generate(target, prompt, drafter, GREEDY, max_new_tokens=length)
        assert drafted.tokens == plain[len(prompt)][:length]
        assert drafted.stats.drafted > 0
    for budget in range(1, 6):
        assert generate(target, PROMPT, drafter, GREEDY, max_new_tokens=budget).tokens == plain[len(PROMPT)][:budget]


def test_a_batch_decodes_as_its_rows(target, heads):
    prompts = [PROMPT, [4]]
    for options in (TREES["bushy"], TREES["static"]):
        drafter = Eagle(heads["version 3"], **options)
        together = generate(target, prompts, drafter, max_new_tokens=12)
        assert [one.tokens for one in together] == [generate(target, text, drafter, max_new_tokens=12).tokens for text in prompts]


def test_nothing_is_proposed_before_anything_was_seen(target, heads):
    for options in (TREES["bushy"], TREES["static"]):
        proposer = Eagle(heads["version 3"], **options).start(target, GREEDY, 20)
        assert len(proposer.propose([4], 10, Uniforms(0))) == 0


def test_the_context_may_be_filled_exactly(target, heads):
    prompt = [1] * 250
    for name in ("deep", "static"):
        assert len(generate(target, prompt, Eagle(heads["version 1"], **TREES[name]), GREEDY, max_new_tokens=6).tokens) == 6


# Errors and files.


@pytest.mark.parametrize(("make", "message"), [
    (lambda t, h: Eagle(h, 3, 3), "give either depth, top_k and budget, or tree; got .*'budget': None"),
    (lambda t, h: Eagle(h), "give either depth, top_k and budget, or tree"),
    (lambda t, h: Eagle(h, depth=3, tree=[-1]), "'depth': 3.* and tree = \\[-1\\]"),
    (lambda t, h: Eagle(h, 0, 3, 3), "depth must be a whole number >= 1, got 0"),
    (lambda t, h: Eagle(h, 1, 0, 3), "top_k must be a whole number >= 1, got 0"),
    (lambda t, h: Eagle(h, 1, 3, -2), "budget must be a whole number >= 1, got -2"),
    (lambda t, h: Eagle(h, 1, 7, 3), "a node gets 7 children, and the head scores 6 tokens"),
    (lambda t, h: Eagle(h, tree=[-1] * 7), "a node gets 7 children, and the head scores 6 tokens"),
    (lambda t, h: Eagle(h, tree=[-1, 0, -1]), "level by level"),
    (lambda t, h: EagleHead.random(t, version=2), "version must be 1 or 3 .*, got 2"),
    (lambda t, h: EagleHead.random(t, version=1, layers=[0]), "version 1 takes no layers"),
    (lambda t, h: EagleHead.random(t, version=1, ids=[0]), "takes no ids"),
    (lambda t, h: EagleHead.random(t, version=3, layers=[0, 2]), r"layers must be at least one number in \[0, 2\), got \(0, 2\)"),
    (lambda t, h: EagleHead.random(t, version=3, layers=[]), r"layers must be at least one number in \[0, 2\), got \(\)"),
    (lambda t, h: EagleHead.random(t, ids=[]), r"draft_vocab must lie in \[1, 11\], got 0"),
    (lambda t, h: EagleHead.random(t, ids=[1, 1]), r"ids must be 2 different numbers in \[0, 11\), got \[1, 1\]"),
    (lambda t, h: EagleHead.random(t, ids=[1, 11]), r"ids must be 2 different numbers in \[0, 11\), got \[1, 11\]"),
    (lambda t, h: EagleHead(EagleConfig(3, t.config, (0,), 2), [1]), "ids must be 2 different"),
    (lambda t, h: Eagle(h, tree=[-1]).start(tiny_model(0, 7), GREEDY, 9), "vocab_size = 11, this one has 7"),
    (lambda t, h: Eagle(h, tree=[-1]).start(tiny_model(0, 11, 1), GREEDY, 9), r"layers \(0, 0, 1\), this one has 1"),
    (lambda t, h: Eagle(h, tree=[-1]).start(tiny_model(0, 11, dtype=torch.float32), GREEDY, 9), "float64 on cpu, .*float32"),
    (lambda t, h: Eagle(h, tree=[-1]).start(t, GREEDY, 257), "may reach 257 tokens and the head's context ends at 256"),
])  # fmt: skip
def test_errors_come_before_any_work(target, heads, make, message, monkeypatch):
    monkeypatch.setattr(type(target), "forward", lambda *_, **__: pytest.fail("the target ran before the error"))
    with pytest.raises(ValueError, match=message):
        make(target, heads["version 3, reduced"])


def test_layers_that_are_read_by_default():
    assert fused_layers(32) == (1, 15, 28)
    assert fused_layers(30) == (1, 14, 26)
    assert all(0 <= layer < n for n in range(1, 40) for layer in fused_layers(n))


@pytest.mark.parametrize("kind", HEADS)
def test_stored_heads_are_the_same_heads(target, heads, kind, tmp_path):
    path = tmp_path / "head.safetensors"
    heads[kind].save(path)
    again = EagleHead.load(path, target)
    assert again.config == heads[kind].config
    assert again.state_dict().keys() == heads[kind].state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(heads[kind].state_dict().values(), again.state_dict().values(), strict=True))
    with safe_open(path, "pt") as file:
        about, names = file.metadata(), list(file.keys())
    assert (about["kind"], about["version"], about["format"]) == ("eagle", kind[8], "1")
    assert Config(**json.loads(about["config"])["target"]) == target.config
    assert not any("embedding.weight" in name for name in names), "the target's embedding is not stored"
    single = EagleHead.load(path, tiny_model(1, 11, dtype=torch.float32))
    assert {parameter.dtype for parameter in single.parameters()} == {torch.float32}
    assert kind == "version 1" or single.ids.dtype == torch.int64


def test_what_cannot_be_loaded(target, heads, tmp_path):
    path = tmp_path / "head.safetensors"
    head = EagleHead.random(target, ids=SOME)
    head.save(path)
    for other, message in ((tiny_model(0, 7), "vocab_size = 11, this one has 7"), (tiny_model(0, 11, 1), "this one has 1")):
        with pytest.raises(CheckpointError, match=message) as error:
            EagleHead.load(path, other)
        assert str(path) in str(error.value)
    head.ids[0] = 11
    head.save(path)
    with pytest.raises(CheckpointError, match=r"ids must be 6 different numbers in \[0, 11\)"):
        EagleHead.load(path, target)
