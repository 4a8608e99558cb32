"""SmolLM2-135M: the same numbers as an independent implementation, and the same text with and without speculation."""

from dataclasses import dataclass

import pytest
import torch
from prompts import PROMPTS

from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import PromptLookup
from specdec.methods import METHODS, Settings, build
from specdec.models.checkpoints import smollm2_path

pytestmark = pytest.mark.model
GREEDY = Sampling(0)


@pytest.fixture(scope="module")
def reference():
    """transformers' own reading of the same GGUF, in float32."""
    transformers = pytest.importorskip("transformers")
    path = smollm2_path()
    return transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()


@dataclass(frozen=True)
class Texts:
    """Some of the ten prompts, each with `length` greedy tokens in float32, made as one batch without speculation."""

    prompts: list[str]
    length: int
    plain: list[list[int]]


SHORT, LONG = (PROMPTS[5:8], 16), (PROMPTS, 200)  # the three repeat themselves, so that prompt lookup has something to find


@pytest.fixture(scope="module", params=[SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
def texts(request, smollm2_float32):
    prompts, length = request.param
    runs = generate(smollm2_float32, prompts, None, GREEDY, max_new_tokens=length)
    return Texts(prompts, length, [run.tokens for run in runs])


@torch.inference_mode()
def test_logits_equal_transformers(smollm2_float32, reference):
    for prompt in PROMPTS:
        ids = torch.tensor([smollm2_float32.tokenizer.encode(prompt)])
        ours = smollm2_float32(ids, smollm2_float32.new_cache(ids.shape[1])).logits
        assert (ours - reference(ids).logits).abs().max() <= 1e-3


@torch.inference_mode()
def test_plain_greedy_text_equals_transformers(smollm2_float32, reference, texts):
    ids = [torch.tensor(smollm2_float32.tokenizer.encode(prompt)) for prompt in texts.prompts]
    batch = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_side="left")  # all prompts at once: the weights are read once
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True, padding_side="left")
    options = {"max_new_tokens": texts.length, "min_new_tokens": texts.length, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    theirs = reference.generate(batch, attention_mask=mask, **options)[:, batch.shape[1] :].tolist()
    for prompt, ours, other in zip(texts.prompts, texts.plain, theirs, strict=True):
        assert other == ours, prompt


def test_speculation_keeps_the_greedy_text(smollm2_float32, texts):
    """Prompt by prompt, each alone."""
    accepted, length = 0, min(60, texts.length)
    for prompt, plain in zip(texts.prompts, texts.plain, strict=True):
        run = generate(smollm2_float32, prompt, PromptLookup(3, 8), GREEDY, max_new_tokens=length)
        assert run.tokens == plain[:length], prompt
        accepted += run.stats.accepted
    assert accepted > len(texts.prompts), "hardly anything was accepted, so hardly anything was tested"


# Small trees: where the heads are random, nearly all of a tree is there to be rejected.
SMALL = Settings(k=3, layers=2, tree=(1, 2), depth=2, beam=2, budget=3, ngram=2, window=1, pool=1)


@pytest.mark.parametrize("method", [*METHODS, "eagle-3+prompt-lookup"])
def test_every_method_keeps_the_greedy_tokens_of_a_batch(smollm2_float32, texts, method):
    runs = generate(smollm2_float32, texts.prompts, build(method, smollm2_float32, SMALL), GREEDY, max_new_tokens=texts.length)
    for prompt, run, plain in zip(texts.prompts, runs, texts.plain, strict=True):
        assert run.tokens == plain, prompt


@pytest.mark.slow  # tests/test_cli.py has the same with fewer tokens
@pytest.mark.parametrize("method", [*METHODS, "eagle-3+prompt-lookup"])
def test_a_width_keeps_the_text_of_every_method_in_bfloat16(smollm2, method):
    """60 tokens here; `python -m benchmarks.bit_identity --width 4` does thousands."""
    drafter = build(method, smollm2, SMALL)
    for prompt in PROMPTS[:2]:
        plain = generate(smollm2, prompt, None, GREEDY, 30, width=8).tokens
        assert generate(smollm2, prompt, drafter, GREEDY, 30, width=8).tokens == plain, prompt


@torch.inference_mode()
def test_default_model_is_close_to_float32(smollm2, smollm2_float32):
    """16-bit weights: another rounding, the same model."""
    for prompt in PROMPTS[:3]:
        ids = torch.tensor([smollm2.tokenizer.encode(prompt)])
        p = Sampling().probabilities(smollm2(ids, smollm2.new_cache(ids.shape[1])).logits.float())
        q = Sampling().probabilities(smollm2_float32(ids, smollm2_float32.new_cache(ids.shape[1])).logits)
        assert (p - q).abs().sum(-1).max() / 2 < 0.1


def test_default_weights_take_sixteen_bits(smollm2):
    assert smollm2.embedding.weight.dtype == torch.bfloat16
    assert smollm2.config.layers == 30
    assert smollm2.config.vocab_size == 49_152


def test_tokenizer(smollm2):
    for prompt in PROMPTS[:-1]:
        assert smollm2.tokenizer.decode(smollm2.tokenizer.encode(prompt)) == prompt
    assert len(smollm2.tokenizer.encode("12345")) == 5, "digits are split one by one"
    assert smollm2.tokenizer.encode("<|im_start|>") == [1], "a special token written out is that token"
    assert smollm2.tokenizer.decode([1, *smollm2.tokenizer.encode("x"), 2]) == "x"


def test_chat_template(smollm2):
    text = smollm2.tokenizer.chat("Hello", system="Be brief.")
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_default_model_speaks_and_stops(smollm2):
    prompt = smollm2.tokenizer.chat("What is the capital of France? Answer in one word.")
    run = generate(smollm2, prompt, PromptLookup(), GREEDY, 40, smollm2.tokenizer.stop_tokens)
    assert "Paris" in run.text
    assert run.tokens[-1] in smollm2.tokenizer.stop_tokens
    assert "<|im_end|>" not in run.text
