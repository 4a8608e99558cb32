"""Hugging Face directories: the same logits as `transformers`, whatever the family, and a named error for what cannot be read."""

import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors

from specdec.config import Config
from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import DraftModel
from specdec.models import CheckpointError, huggingface, load_model
from specdec.models.transformer import rope_attention_factor, rope_frequencies

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "bos_token_id": 0, "eos_token_id": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}  # fmt: skip
TIED, MHA, WIDE = {"tie_word_embeddings": True}, {"num_key_value_heads": 4}, {"head_dim": 8}


def rope(kind: str, **numbers) -> dict:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **numbers}}


# With heads of 8 numbers and a theta of 100 every region of a scaling holds a frequency: kept, in between, divided.
LINEAR = rope("linear", factor=4.0)
LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=0.5)
YARN_SET = rope("yarn", factor=4.0, original_max_position_embeddings=32, attention_factor=1.7, truncate=False)
YARN_MSCALE = rope("yarn", factor=4.0, original_max_position_embeddings=16, mscale=2.0, mscale_all_dim=0.5)

CASES = {
    "llama": ("llama", {}),
    "llama, tied, MHA, wide heads": ("llama", TIED | MHA | WIDE),
    "llama, biases": ("llama", {"attention_bias": True}),
    "llama, bytes": ("llama", {"vocab_size": 260}),
    "llama, linear": ("llama", WIDE | LINEAR),
    "llama, llama3": ("llama", WIDE | LLAMA3 | TIED),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral, window, wide heads": ("mistral", WIDE | {"sliding_window": 24}),
    "qwen2": ("qwen2", {}),
    "qwen2, tied, MHA, yarn": ("qwen2", TIED | MHA | YARN),
    "qwen2, yarn, mscale": ("qwen2", YARN_MSCALE),
    "qwen3": ("qwen3", WIDE),
    "qwen3, tied, biases, MHA": ("qwen3", WIDE | TIED | MHA | {"attention_bias": True}),
    "qwen3, yarn": ("qwen3", WIDE | YARN_SET),
}


def random_reference(kind: str, changes: dict, seed: int = 0):
    """A model of `transformers`. All its parameters are perturbed: biases start at zero and norms at one, and would prove nothing."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **SMALL | changes)).eval()
    return perturb(model, 0.2)


@torch.no_grad()
def perturb(model, scale: float):
    for parameter in model.parameters():
        parameter += scale * torch.randn_like(parameter)
    return model


def saved(tmp_path, case: str, dtype=torch.float32):
    reference = random_reference(*CASES[case]).to(dtype)
    reference.save_pretrained(tmp_path)
    return reference


def some_tokens(n: int) -> torch.Tensor:
    return torch.randint(0, SMALL["vocab_size"], (1, n), generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def their_logits(reference, tokens):
    return reference(tokens).logits


@torch.inference_mode()
def our_logits(model, tokens, piece: int | None = None):
    cache = model.new_cache()
    return torch.cat([model(part, cache).logits for part in tokens.split(piece or tokens.shape[1], dim=1)], dim=1)


def rewrite(path, change):
    """Applies `change` to the JSON object in the file: a dict to merge (None deletes a key), or a function."""
    content = json.loads(path.read_text())
    if callable(change):
        change(content)
    else:
        content = {key: value for key, value in (content | change).items() if value is not None}
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_are_those_of_transformers(tmp_path, case, dtype):
    reference = saved(tmp_path, case, dtype)
    model, tokens = load_model(tmp_path, dtype=dtype), some_tokens(24)
    expected = their_logits(reference, tokens)
    assert expected.std() > 0.3
    for piece in (None, 1, 5):
        torch.testing.assert_close(our_logits(model, tokens, piece), expected, rtol=0, atol=1e-5)


def without_qk_norm(model):
    for layer in model.layers:
        layer.attention.qk_norm = False


def without_qkv_bias(model):
    for layer in model.layers:
        layer.attention.qkv.bias.zero_()


def without_out_bias(model):
    for layer in model.layers:
        layer.attention.out.bias.zero_()


def with_k_and_v_exchanged(model):
    for layer in model.layers:
        q, k, v = layer.attention.qkv.weight.split([24, 12, 12])
        layer.attention.qkv.weight.copy_(torch.cat([q, v, k]))


def with_pairs_side_by_side(model):
    for layer in model.layers:
        q = layer.attention.qkv.weight[:24]
        q.copy_(q.view(4, 2, 3, 24).transpose(1, 2).reshape(24, 24))


def with_up_as_gate(model):
    for layer in model.layers:
        layer.ffn.gate_up.weight.copy_(torch.cat(layer.ffn.gate_up.weight.chunk(2)[::-1]))


def with_the_embedding_as_head(model):
    model.head.weight = model.embedding.weight


def without_scaling(model):
    model.config = replace(model.config, rope_scaling=None)
    model.set_rope()


def without_attention_factor(model):
    model.config = replace(model.config, rope_scaling=model.config.rope_scaling | {"attention_factor": 1.0})
    model.set_rope()


def with_another_theta(model):
    model.config = replace(model.config, rope_theta=10_000.0)
    model.set_rope()


@pytest.mark.parametrize(("case", "spoil"), [
    ("qwen3", without_qk_norm), ("qwen2", without_qkv_bias), ("llama, biases", without_qkv_bias), ("llama, biases", without_out_bias),
    ("qwen3, tied, biases, MHA", without_out_bias), ("llama", with_k_and_v_exchanged), ("llama", with_pairs_side_by_side),
    ("mistral", with_up_as_gate), ("llama", with_the_embedding_as_head), ("llama, linear", without_scaling),
    ("llama, llama3", without_scaling), ("qwen2, yarn, mscale", without_attention_factor), ("qwen2", with_another_theta),
    ("qwen2, tied, MHA, yarn", without_scaling), ("qwen2, tied, MHA, yarn", without_attention_factor),
])  # fmt: skip
def test_what_the_comparison_would_notice(tmp_path, case, spoil):
    """Negative controls: each switch, left out, moves the logits far beyond the tolerance above."""
    reference = saved(tmp_path, case)
    model, tokens = load_model(tmp_path, dtype=torch.float32), some_tokens(24)
    with torch.no_grad():
        spoil(model)
    assert (our_logits(model, tokens) - their_logits(reference, tokens)).abs().max() > 0.01


PUBLISHED = {
    "Llama 3.1": (500_000.0, 131_072, 128, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                            "original_max_position_embeddings": 8192}),
    "Llama 3.2": (500_000.0, 131_072, 64, {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                           "original_max_position_embeddings": 8192}),
    "Qwen2.5, yarn": (1_000_000.0, 32_768, 128, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}),
    "yarn, not rounded": (10_000.0, 4096, 80, {"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 4096,
                                               "beta_fast": 24, "beta_slow": 2, "truncate": False}),
    "yarn in one step": (10.0, 64, 8, {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 6}),
    "linear": (10_000.0, 4096, 128, {"rope_type": "linear", "factor": 2.5}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_scaled_frequencies_are_those_of_transformers(name):
    theta, max_length, head_dim, scaling = PUBLISHED[name]
    theirs = transformers.LlamaConfig(
        hidden_size=head_dim * 4, num_attention_heads=4, max_position_embeddings=max_length,
        rope_parameters={"rope_theta": theta, **scaling},
    )  # fmt: skip
    frequencies, factor = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[scaling["rope_type"]](theirs, "cpu")
    ours = Config(31, head_dim * 4, 1, 4, 4, head_dim, 8, max_length, rope_theta=theta, rope_scaling=scaling)
    torch.testing.assert_close(rope_frequencies(ours).float(), frequencies, rtol=2e-6, atol=0)
    assert rope_attention_factor(ours) == pytest.approx(factor, rel=1e-12)
    unscaled = rope_frequencies(replace(ours, rope_scaling=None))
    assert rope_frequencies(ours).dtype == torch.float64
    assert ((unscaled - rope_frequencies(ours)) / unscaled).max() > 0.4, "scaling changes something here"


@pytest.mark.parametrize("case", ["llama", "llama, linear", "llama, llama3", "qwen2, tied, MHA, yarn", "qwen3, yarn"])
def test_the_older_form_of_the_configuration(tmp_path, case):
    """rope_theta at the top, rope_scaling beside it with "type"; no architectures; a head_dim that says nothing."""
    saved(tmp_path, case)
    newer = load_model(tmp_path, dtype=torch.float32).config

    def age(content):
        parameters = content.pop("rope_parameters")
        content["rope_theta"], kind = parameters.pop("rope_theta"), parameters.pop("rope_type")
        content["rope_scaling"] = None if kind == "default" else {"type": kind, **parameters}
        del content["architectures"]

    rewrite(tmp_path / "config.json", age)
    assert load_model(tmp_path, dtype=torch.float32).config == newer
    assert newer.rope_theta == 100.0


def test_the_original_length_of_a_scaling(tmp_path):
    """It stands beside the scaling in some files, and is the model's own where none is given; a factor of yarn follows from it."""
    saved(tmp_path, "qwen2, tied, MHA, yarn")
    rewrite(tmp_path / "config.json", {"original_max_position_embeddings": 16})
    scaling = load_model(tmp_path).config.rope_scaling
    assert (scaling["original_max_position_embeddings"], scaling["factor"]) == (16, 4)
    rewrite(tmp_path / "config.json", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 100.0}})
    assert load_model(tmp_path).config.rope_scaling["factor"] == 64 / 16
    rewrite(tmp_path / "config.json", {"original_max_position_embeddings": None})
    assert load_model(tmp_path).config.rope_scaling["original_max_position_embeddings"] == 64


def test_an_old_llama_names_few_things(tmp_path):
    reference = random_reference("llama", MHA)
    reference.save_pretrained(tmp_path)
    gone = ("num_key_value_heads", "head_dim", "attention_bias", "mlp_bias", "rope_parameters", "tie_word_embeddings")
    rewrite(tmp_path / "config.json", dict.fromkeys(gone))
    config = load_model(tmp_path, dtype=torch.float32).config
    assert config == Config(31, 24, 2, 4, 4, 6, 40, 64, rope_theta=10_000.0, norm_eps=1e-5, tied=False)
    stored = load_file(tmp_path / "model.safetensors")
    stored["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(3)
    save_file(stored, tmp_path / "model.safetensors")
    load_model(tmp_path, dtype=torch.float32)


def test_a_sliding_window_ends_the_context(tmp_path):
    case = "mistral, window, wide heads"
    reference, tokens = saved(tmp_path, case), some_tokens(32)
    model = load_model(tmp_path, dtype=torch.float32)
    assert model.config.max_length == 24
    with pytest.raises(ValueError, match="context of 24"):
        model(tokens, model.new_cache(32))
    # Negative control: behind the window a model without one differs.
    rewrite(tmp_path / "config.json", lambda content: content.update(sliding_window=None))
    unlimited = load_model(tmp_path, dtype=torch.float32)
    difference = (our_logits(unlimited, tokens) - their_logits(reference, tokens)).abs().amax(-1)[0]
    assert unlimited.config.max_length == 64
    assert difference[:24].max() < 1e-5
    assert difference[24:].max() > 0.01
    rewrite(tmp_path / "config.json", {"sliding_window": None, "max_position_embeddings": 5000})
    assert load_model(tmp_path).config.max_length == 4096, "the window of a Mistral that names none"


@pytest.mark.parametrize("case", ["llama, llama3", "qwen3"])
def test_shards(tmp_path, case):
    reference, tokens = random_reference(*CASES[case]), some_tokens(12)
    reference.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert not (tmp_path / "model.safetensors").exists()
    logits = our_logits(load_model(tmp_path, dtype=torch.float32), tokens)
    torch.testing.assert_close(logits, their_logits(reference, tokens), rtol=0, atol=1e-5)


def test_dtypes(tmp_path):
    """bfloat16 by default, as for a GGUF; a bfloat16 file widens without loss."""
    reference, tokens = random_reference(*CASES["qwen2"]), some_tokens(12)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(parameter.bfloat16())
    reference.save_pretrained(tmp_path)
    retensor(lambda t: t.update({name: tensor.bfloat16() for name, tensor in t.items()}))(tmp_path)
    model = load_model(tmp_path)
    assert model.embedding.weight.dtype == torch.bfloat16
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    exact = their_logits(reference, tokens)
    torch.testing.assert_close(our_logits(load_model(tmp_path, dtype=torch.float32), tokens), exact, rtol=0, atol=1e-5)
    error = (our_logits(model, tokens).float() - exact).abs().max()
    assert error < 0.1  # rounding; none where 16-bit weights are summed in float32


def test_a_tied_head_is_the_embedding_itself(tmp_path):
    saved(tmp_path, "llama, tied, MHA, wide heads")
    model = load_model(tmp_path, dtype=torch.float32)
    assert model.head.weight is model.embedding.weight
    stored = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in stored
    save_file(stored | {"lm_head.weight": stored["model.embed_tokens.weight"].clone()}, tmp_path / "model.safetensors")
    model = load_model(tmp_path, dtype=torch.float32)
    assert model.head.weight is model.embedding.weight


@pytest.mark.parametrize(("target", "draft"), [("qwen3", "qwen3"), ("qwen3", "llama, biases"), ("llama, llama3", "qwen2, tied, MHA, yarn")])
def test_a_draft_from_a_directory_leaves_greedy_text_alone(tmp_path, target, draft):
    reference = saved(tmp_path / "target", target, torch.float64)
    if draft == target:  # an able draft: the target with a little noise
        perturb(random_reference(*CASES[draft]).double(), 0.01).save_pretrained(tmp_path / "draft")
    else:
        saved(tmp_path / "draft", draft, torch.float64)
    model, small = (load_model(tmp_path / name, dtype=torch.float64) for name in ("target", "draft"))
    prompt = some_tokens(6)[0]
    plain = generate(model, prompt, None, Sampling(0), 24)
    run = generate(model, prompt, DraftModel(small, k=3), Sampling(0), 24)
    assert run.tokens == plain.tokens
    assert run.stats.forwards < 24 if draft == target else run.stats.drafted > run.stats.accepted
    with torch.inference_mode():
        theirs = reference.generate(prompt[None], max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert theirs[0, 6:].tolist() == plain.tokens


# Tokenizers

END = 259  # of `saved_tokenizer`
TEMPLATE = """{{ bos_token }}
{% for message in messages %}
    {% if message['role'] == 'system' and refuse %}
{{ raise_exception('no system message') }}
    {% endif %}
[{{ message['role'] }}] {{ message['content'] | tojson }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}[assistant] {% endif %}"""


def saved_tokenizer(path, **settings):
    """A byte-level BPE with special tokens, that begins every text with <s>, cuts after 3 tokens and fills up to 5."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = FastTokenizer(models.BPE({token: i for i, token in enumerate([*alphabet, "ab", "abc"])}, [("a", "b"), ("ab", "c")]))
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast.add_special_tokens(["<s>", "</s>"])
    fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", fast.token_to_id("<s>"))])
    fast.enable_truncation(3)
    fast.enable_padding(length=5)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<s>", eos_token="</s>", **settings)
    wrapped.save_pretrained(path)
    return wrapped


def test_tokenizer(tmp_path):
    saved(tmp_path, "llama, bytes")
    theirs = saved_tokenizer(tmp_path, chat_template=TEMPLATE)
    assert (tmp_path / "chat_template.jinja").exists()
    ours = load_model(tmp_path).tokenizer
    for text in ("abc, cab and abab", "<s>abc</s> ünïcode", ""):
        assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids
        assert ours.decode(ours.encode(text)) == text.replace("<s>", "").replace("</s>", "")
    assert len(ours.encode("abcabc<s>abc")) == 4
    messages = [{"role": "system", "content": "Be <brief>."}, {"role": "user", "content": "abc"}]
    expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert ours.chat("abc", system="Be <brief>.") == expected
    assert expected.startswith("<s>")
    assert ours.same_vocabulary(load_model(tmp_path).tokenizer)


@pytest.mark.parametrize(("generation", "config", "expected"), [
    ({"eos_token_id": [3, 7]}, 1, (3, 7, 1, END)), ({"eos_token_id": 3}, [3], (3, END)), ({}, 5, (5, END)), (None, [1, 2], (1, 2, END)),
    ({"eos_token_id": None}, None, (END,)), (None, [END], (END,)),
])  # fmt: skip
def test_a_generation_stops_at_every_token_that_any_file_names(tmp_path, generation, config, expected):
    saved(tmp_path, "llama, bytes")
    saved_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    rewrite(tmp_path / "config.json", lambda content: content.update(eos_token_id=config))
    assert load_model(tmp_path).tokenizer.stop_tokens == expected


@pytest.mark.parametrize("token", ["</s>", {"content": "</s>", "lstrip": False}, None])
def test_the_end_token_of_the_tokenizer_alone(tmp_path, token):
    saved(tmp_path, "llama, bytes")
    saved_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    rewrite(tmp_path / "config.json", {"eos_token_id": None})
    rewrite(tmp_path / "tokenizer_config.json", {"eos_token": token})
    assert load_model(tmp_path).tokenizer.stop_tokens == ((END,) if token else ())


@pytest.mark.parametrize(("name", "change", "message"), [
    ("generation_config.json", {"eos_token_id": 260}, r"ids in \[0, 260\), got 260"),
    ("generation_config.json", {"eos_token_id": [1, 999]}, r"ids in \[0, 260\), got \[1, 999\]"),
    ("config.json", {"eos_token_id": -1}, r"ids in \[0, 260\), got -1"),
    ("tokenizer_config.json", {"eos_token": "<end>"}, "eos_token '<end>' is unknown to tokenizer.json"),
    ("config.json", {"vocab_size": 259}, "tokenizer_config.json: eos_token '</s>' is the id 259, outside the vocabulary of 259"),
])  # fmt: skip
def test_an_end_token_outside_the_vocabulary_is_named_with_its_file(tmp_path, name, change, message):
    reference = random_reference("llama", {"vocab_size": change.get("vocab_size", 260)})
    reference.save_pretrained(tmp_path)
    saved_tokenizer(tmp_path)
    rewrite(tmp_path / name, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_model(tmp_path)
    assert name in str(caught.value) or "vocab_size" in change


def test_chat_templates(tmp_path):
    saved(tmp_path, "llama, bytes")
    saved_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="no chat template"):
        load_model(tmp_path).tokenizer.chat("abc")
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}"}]
    settings = tmp_path / "tokenizer_config.json"
    rewrite(settings, {"chat_template": named, "bos_token": {"content": "<s>", "lstrip": False}})
    assert load_model(tmp_path).tokenizer.chat("abc") == "<s>abc"
    rewrite(settings, {"chat_template": "{{ raise_exception('only in pairs') }}"})
    with pytest.raises(ValueError, match="only in pairs"):
        load_model(tmp_path).tokenizer.chat("abc")
    (tmp_path / "chat_template.jinja").write_text("its own file: {{ strftime_now('%Y') | length }}")
    assert load_model(tmp_path).tokenizer.chat("abc") == "its own file: 4"


def test_marks_for_training_in_a_chat_template_change_nothing(tmp_path):
    """{% generation %} around what the assistant says, as `transformers` has it; names that are set inside stay there."""
    template = """{% for m in messages %}
{{ m.role }}:
    {% generation %}
    {% set said = m.content %}
 {{ said }}{% if loop.last %}!{% endif %}
    {% endgeneration %}
{{ said is defined }}
{% endfor %}"""
    saved(tmp_path, "llama, bytes")
    theirs = saved_tokenizer(tmp_path, chat_template=template)
    expected = theirs.apply_chat_template([{"role": "user", "content": "abc"}], tokenize=False)
    assert load_model(tmp_path).tokenizer.chat("abc") == expected
    assert "abc!" in expected


def test_a_chat_template_sees_what_transformers_shows_it(tmp_path):
    template = "{% if tools is not none or documents is not none %}tools!{% endif %}{{ messages[0].content }}"
    saved(tmp_path, "llama, bytes")
    theirs = saved_tokenizer(tmp_path, chat_template=template)
    assert load_model(tmp_path).tokenizer.chat("abc") == theirs.apply_chat_template([{"role": "user", "content": "abc"}], tokenize=False)
    (tmp_path / "chat_template.jinja").write_text("{{ messages + 1 }}")
    with pytest.raises(ValueError, match="the chat template cannot take these messages: can only concatenate list"):
        load_model(tmp_path).tokenizer.chat("abc")


LONG = {"max_position_embeddings": 64}


@pytest.mark.parametrize(("changes", "expected"), [
    (rope("linear", factor=4.0), 256), (rope("linear", factor=2.5, original_max_position_embeddings=16), 64), (LLAMA3, 64),
    (rope("yarn", factor=4.0), 256), (rope("yarn", factor=4.0, original_max_position_embeddings=64), 256),
    (rope("yarn", factor=4.0, original_max_position_embeddings=16), 64), (rope("default"), 64),
    ({"rope_parameters": None, "rope_scaling": {"type": "yarn", "factor": 2.0}, "original_max_position_embeddings": 40}, 80),
])  # fmt: skip
def test_the_context_is_the_scaled_one(tmp_path, whole, changes, expected):
    """Whether a checkpoint names the length before its scaling or the one after it."""
    path = shutil.copytree(whole.one, tmp_path / "model")
    rewrite(path / "config.json", LONG | changes)
    model = load_model(path, dtype=torch.float32)
    assert model.config.max_length == expected
    cache = model.new_cache()
    assert model(some_tokens(expected), cache).logits.isfinite().all()
    assert cache.length == expected


def test_a_window_ends_a_scaled_context(tmp_path):
    random_reference("mistral", {"sliding_window": 100} | LINEAR).save_pretrained(tmp_path)
    assert load_model(tmp_path).config.max_length == 100


def test_without_a_tokenizer(tmp_path):
    saved(tmp_path, "llama")
    model = load_model(tmp_path, dtype=torch.float32)
    assert model.tokenizer is None
    assert generate(model, [1, 2, 3], None, Sampling(0), 4).text is None


# Errors


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Directories that load; a test spoils a copy of one."""
    paths = SimpleNamespace(one=tmp_path_factory.mktemp("one"), tied=tmp_path_factory.mktemp("tied"), many=tmp_path_factory.mktemp("many"))
    saved(paths.one, "llama, biases")
    saved(paths.tied, "llama, tied, MHA, wide heads")
    random_reference(*CASES["llama"]).save_pretrained(paths.many, max_shard_size="8KB")
    return paths


@pytest.fixture
def read_nothing(monkeypatch):
    """A test with this fixture fails if a weight is read before the error."""
    monkeypatch.setattr(huggingface, "_read", lambda *_: pytest.fail("weights were read"))


def test_the_directories_that_the_errors_start_from_load(whole):
    for path in vars(whole).values():
        load_model(path)


@pytest.mark.usefixtures("read_nothing")
@pytest.mark.parametrize(("change", "message"), [
    ({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}, r"'MambaForCausalLM'.*can be read: LlamaForCausalLM.*\(qwen3\)"),
    ({"architectures": None, "model_type": "gpt2"}, "model_type 'gpt2' is unknown"),
    ({"model_type": "granite"}, "model_type 'granite' is unknown"),
    ({"architectures": None, "model_type": None}, "is unknown"),
    ({"mlp_bias": True}, "mlp_bias = True"), ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
    ({"use_sliding_window": True}, "use_sliding_window = True"), ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
    ({"quantization_config": {"quant_method": "awq"}}, "quantization_config = .*awq"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types with 'sliding_attention'"),
    (rope("default", partial_rotary_factor=0.25), "partial_rotary_factor = 0.25"), (rope("longrope"), "rope_type 'longrope' is unknown"),
    (rope("dynamic", factor=2.0), "rope_type 'dynamic' turns by the length of the text"), (rope("linear"), "'linear' needs factor"),
    (rope("linear", factor=-1), "factor of rope_type 'linear' must be a number > 0, got -1"),
    (rope("yarn", factor=2.0, truncate="no"), "truncate must be true or false"),
    (rope("llama3", factor=2.0, low_freq_factor=4, high_freq_factor=1), "low_freq_factor must be below"),
    ({"rope_scaling": {"type": "su", "factor": 2.0}}, "rope_type 'su'"),
    ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rope_parameters must be one object"),
    ({"rope_parameters": {"rope_theta": "big"}}, "rope_theta must be a number > 0, got 'big'"),
    ({"hidden_size": "24"}, "hidden_size must be a whole number >= 1, got '24'"), ({"vocab_size": None}, "vocab_size must be .* got None"),
    ({"rms_norm_eps": None}, "rms_norm_eps must be a number > 0, got None"),
    ({"num_key_value_heads": 3}, "heads must be a multiple of kv_heads, got 4 and 3"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false, got 'yes'"),
    ({"num_hidden_layers": 3}, "lacks the tensor model.layers.2.input_layernorm.weight and"),
    ({"num_hidden_layers": 1}, "model.safetensors holds the tensor model.layers.1.* and 12 more, for which"),
    ({"attention_bias": False}, r"holds the tensor model.layers.\d.self_attn.[kqvo]_proj.bias and 7 more"),
    ({"vocab_size": 32}, r"model.safetensors: the tensor model.embed_tokens.weight must be \(32, 24\), got \(31, 24\)"),
    ({"num_key_value_heads": None}, r"self_attn.k_proj.weight must be \(24, 24\), got \(12, 24\)"),
    ({"tie_word_embeddings": True}, "tie_word_embeddings is true, but lm_head.weight is not"),
])  # fmt: skip
def test_configurations_that_cannot_be_read_are_named(tmp_path, whole, change, message):
    path = shutil.copytree(whole.one, tmp_path / "model")
    rewrite(path / "config.json", change)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_settings_that_change_nothing_are_let_pass(tmp_path, whole):
    path = shutil.copytree(whole.one, tmp_path / "model")
    harmless = {"hidden_act": "silu", "mlp_bias": False, "use_sliding_window": False, "partial_rotary_factor": 1.0, "sliding_window": 8,
                "layer_types": ["full_attention"] * 2, "attention_dropout": 0.1, "pretraining_tp": 2}  # fmt: skip
    harmless["rope_theta"] = 7.0  # the one in rope_parameters holds
    rewrite(path / "config.json", harmless)
    assert load_model(path).config == load_model(whole.one).config


def retensor(change):
    """Rewrites model.safetensors with the tensors as `change` (a function on the dict) leaves them."""

    def apply(path):
        tensors = load_file(path / "model.safetensors")
        change(tensors)
        save_file(tensors, path / "model.safetensors")

    return apply


def truncate(file):
    file.write_bytes(file.read_bytes()[:-100])


def shard(path, number=1):
    return next(path.glob(f"model-0000{number}-of-*.safetensors"))


INDEX, NORM, HEAD = "model.safetensors.index.json", "model.norm.weight", "lm_head.weight"
DAMAGE = {
    "no config": ("one", lambda path: (path / "config.json").unlink(), "config.json is missing"),
    "broken config": ("one", lambda path: (path / "config.json").write_text("{"), "config.json is no readable JSON"),
    "config is a list": ("one", lambda path: (path / "config.json").write_text("[]"), "must hold a JSON object, got list"),
    "no weights": ("one", lambda path: (path / "model.safetensors").unlink(), "no safetensors at all"),
    "truncated": ("one", lambda path: truncate(path / "model.safetensors"), "model.safetensors is no whole safetensors file"),
    "empty": ("one", lambda path: (path / "model.safetensors").write_bytes(b""), "model.safetensors is no whole safetensors file"),
    "tensor missing": ("one", retensor(lambda t: t.pop("model.layers.1.mlp.up_proj.weight")), "lacks the tensor .*1.mlp.up_proj.weight"),
    "bias missing": ("one", retensor(lambda t: t.pop("model.layers.0.self_attn.o_proj.bias")), "lacks .*layers.0.self_attn.o_proj.bias"),
    "head missing": ("one", retensor(lambda t: t.pop(HEAD)), "lacks the tensor lm_head.weight, which"),
    "tensor too many": ("one", retensor(lambda t: t.update(score=torch.ones(2))), "model.safetensors holds the tensor score, for which"),
    "shape": ("one", retensor(lambda t: t.update({NORM: torch.ones(23)})), r"tensor model.norm.weight must be \(24,\), got \(23,\)"),
    "integers": ("one", retensor(lambda t: t.update({NORM: torch.ones(24).char()})), "tensor model.norm.weight is I8; BF16"),
    "another head": ("tied", retensor(lambda t: t.update({HEAD: torch.ones(31, 24)})), "is not model.embed_tokens.weight"),
    "head's shape": ("tied", retensor(lambda t: t.update({HEAD: torch.ones(3, 4)})), r"lm_head.weight must be \(31, 24\)"),
    "shard missing": ("many", lambda path: shard(path).unlink(), r"model-00001-of-.* is missing; .* has .* in it"),
    "shard truncated": ("many", lambda path: truncate(shard(path)), "model-00001-of-.* is no whole safetensors file"),
    "shard twice": ("many", lambda path: shutil.copy(shard(path), shard(path, 2)), "both hold the tensor"),
    "no index": ("many", lambda path: (path / INDEX).unlink(), "neither model.safetensors nor .*, but model-00001-of-"),
    "broken index": ("many", lambda path: (path / INDEX).write_text("{]"), "index.json is no readable JSON"),
    "empty index": ("many", lambda path: rewrite(path / INDEX, {"weight_map": {}}), "weight_map must say"),
    "broken tokenizer": ("one", lambda path: (path / "tokenizer.json").write_text("{}"), "tokenizer.json is no tokenizer"),
    "broken settings": ("one", lambda path: (path / "tokenizer_config.json").write_text("{"), "_config.json is no readable JSON"),
}  # fmt: skip


@pytest.mark.usefixtures("read_nothing")
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_directories_are_named(tmp_path, whole, damage):
    origin, spoil, message = DAMAGE[damage]
    path = shutil.copytree(getattr(whole, origin), tmp_path / "model")
    spoil(path)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("change", [{"eos_token_id": "end"}, {"eos_token_id": [1, None]}])
def test_odd_settings_of_the_tokenizer_are_named(tmp_path, change):
    saved(tmp_path, "llama, bytes")
    saved_tokenizer(tmp_path)
    rewrite(tmp_path / "generation_config.json", change)
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id must be an id or a list of ids"):
        load_model(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    rewrite(tmp_path / "tokenizer_config.json", {"chat_template": 3})
    with pytest.raises(CheckpointError, match="chat_template must be a text, got 3"):
        load_model(tmp_path)


def test_a_scaling_is_checked_where_it_is_made():
    with pytest.raises(ValueError, match="'linear' has no low_freq_factor; it has factor"):
        Config(31, 16, 1, 4, 4, 4, 8, 64, rope_scaling={"rope_type": "linear", "factor": 2.0, "low_freq_factor": 1.0})
