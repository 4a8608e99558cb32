"""Recorded features: what a harvest keeps of the target, and that training on it is training on the target's own forward."""

import json
from dataclasses import replace

import pytest
import torch
from filelock import FileLock
from safetensors import safe_open
from safetensors.torch import load_file
from tiny_harvest import SMALL, target_of_bytes, use_small_sources

from specdec.drafters.eagle_head import fused_layers
from specdec.models.tokenizer import Tokenizer
from specdec.training import harvest as harvests
from specdec.training import trainer
from specdec.training.cards import card
from specdec.training.config import HEADS, TrainConfig
from specdec.training.features import Recorded, features_path, fingerprint
from specdec.training.harvest import harvest
from specdec.training.runs import begin
from specdec.training.texts import Texts, read_shard
from specdec.training.trainer import read_log, train

TOKENS = 120  # of a harvest of several shards


@pytest.fixture(scope="module")
def target():
    """Most of its texts end at a stop token."""
    model = target_of_bytes(0, layers=5)
    model.tokenizer = Tokenizer(model.tokenizer.fast, (257, *range(0, 250, 12)), model.tokenizer.chat_template)
    return model


@pytest.fixture(autouse=True)
def _small_sources(monkeypatch):
    use_small_sources(monkeypatch)


@pytest.fixture
def whole(target, tmp_path):
    harvest(target, tmp_path / "whole", TOKENS, seed=3, config=SMALL, features=True)
    return tmp_path / "whole"


def contents(directory, pattern="*"):
    return {path.name: path.read_bytes() for path in directory.glob(pattern)}


def looked_at(target, ids):
    """A forward of one text, without batch or loop."""
    with torch.inference_mode():
        return target(torch.tensor([ids]), target.new_cache(len(ids)), rows=0, layers=fused_layers(target.config.layers))


# What is recorded.


@pytest.mark.parametrize(("temperature", "cut"), [(0.0, False), (1.0, False), (1.0, True)])
def test_the_features_are_those_of_a_forward(target, tmp_path, monkeypatch, temperature, cut):
    """To bfloat16's rounding: half a unit in the last place is 2^-9 of the value; what float32 adds can carry it over an edge."""
    if cut:  # as if all that follows were a loop
        monkeypatch.setattr(harvests, "cut_loop", lambda answer: answer[:5])
    harvest(target, tmp_path, 1, seed=1, config=replace(SMALL, new_tokens=20, temperatures=(temperature,)), features=True)
    path = tmp_path / "shard-00000.safetensors"
    shard, row = read_shard(path), 0
    assert len(set(map(len, shard.texts))) > 3, "the test wants texts of different lengths"
    assert 0 < sum(text[-1] in target.tokenizer.stop_tokens for text in shard.texts) < len(shard.texts), "some that were stopped"
    assert any(shard.dropped) == cut
    with safe_open(features_path(path), "pt") as file:
        recorded = {name: file.get_tensor(name) for name in ("hidden", "layers")}
        about = json.loads(file.metadata()["about"])
    for text in shard.texts:
        output = looked_at(target, text.tolist())
        for name, found in recorded.items():
            part, wanted = found[row : row + len(text) - 1], getattr(output, name)[0, :-1]
            torch.testing.assert_close(part.float(), wanted, rtol=2**-8, atol=1e-3, msg=f"{name} is not what the target computes")
        row += len(text) - 1
    D = target.config.hidden_size
    assert {name: (found.shape, found.dtype) for name, found in recorded.items()} == {
        "hidden": ((row, D), torch.bfloat16), "layers": ((row, 3 * D), torch.bfloat16)
    }, "every text has a row for each token but its last"  # fmt: skip
    assert about == shard.about | {"layers": list(fused_layers(5))}
    assert about["target"] == fingerprint(target)


def test_shards_do_not_depend_on_what_is_kept_beside_them(target, whole, tmp_path):
    harvest(target, tmp_path / "plain", TOKENS, seed=3, config=SMALL)
    assert contents(tmp_path / "plain") == contents(whole, "[hs]*"), "recording must not change a byte of harvest.json or a shard"
    assert len(contents(whole, "features-*")) == len(contents(whole, "shard-*")) >= 3


# Several processes, and processes that are killed.


def test_a_shard_that_another_process_writes_is_left_to_it(target, whole, tmp_path):
    out = tmp_path / "shared"
    out.mkdir()
    with FileLock(out / "shard-00001.lock"):
        harvest(target, out, TOKENS, seed=3, config=SMALL, features=True)
    found = contents(out, "*.safetensors")
    assert "shard-00001.safetensors" not in found, "the shard was another's"
    assert len([name for name in found if name.startswith("shard-")]) >= 3, "the harvest must go on with the next shard"
    harvest(target, out, TOKENS, seed=3, config=SMALL, features=True)
    after = contents(out)
    assert contents(whole).items() <= after.items(), "who writes a shard must not matter"
    assert {name.split("-")[0] for name in after} == {"harvest.json", "shard", "features"}
    assert not [name for name in after if name.endswith((".lock", ".part"))], "no lock and no part of a file may stay behind"


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_killed_and_resumed_it_ends_at_the_same_bytes(target, whole, tmp_path, monkeypatch, number):
    """Killed in the middle of its first, second … file: the features of shard 0, shard 0, the features of shard 1, shard 1."""
    out, written, save = tmp_path / "killed", [], harvests.save_file

    def killed(arrays, path, metadata):
        written.append(path)
        if len(written) == number:
            path.write_bytes(b"half a file")
            raise KeyboardInterrupt
        save(arrays, path, metadata)

    with monkeypatch.context() as patch:
        patch.setattr(harvests, "save_file", killed)
        with pytest.raises(KeyboardInterrupt):
            harvest(target, out, TOKENS, seed=3, config=SMALL, features=True)
    for path in out.glob("shard-*.safetensors"):
        assert features_path(path).exists(), "where a shard lies, its features must lie, too"
    harvest(target, out, TOKENS, seed=3, config=SMALL, features=True)
    assert contents(out) == contents(whole)


def test_features_of_an_attempt_that_was_killed_do_not_stay(target, whole):
    """Its threads may have been others, and so its text."""
    (whole / "shard-00001.safetensors").unlink()
    harvest(target, whole, TOKENS, seed=3, config=SMALL)
    assert (whole / "shard-00001.safetensors").exists()
    assert not (whole / "features-00001.safetensors").exists()
    assert (whole / "features-00000.safetensors").exists()


# Training with them.

LENGTH, STEPS = 256, 6


@pytest.fixture(scope="module")
def texts(target, tmp_path_factory):
    """Texts of less than 256 tokens with features, and the directory that they are in."""
    out = tmp_path_factory.mktemp("harvest")
    with pytest.MonkeyPatch.context() as patch:
        use_small_sources(patch)
        harvest(target, out, 400, seed=3, config=replace(SMALL, new_tokens=24), features=True)
    return out


def config(method, data, **changes):
    usual = {"steps": STEPS, "warmup": 2, "batch": 4, "length": LENGTH, "draft_vocab": 200, "checkpoint_every": 2, "validate_every": 3}
    return TrainConfig(method, str(data), **usual | {"learning_rate": 0.01, "validation_texts": 4} | changes)


def trained(directory, target, data, method, **changes):
    held = Texts(data)  # so few shards hold none out
    return train(config(method, data, **changes), directory, target=target, train_texts=Texts(data), held_texts=held)


def weights(path):
    return {name: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in load_file(path).items()}


@pytest.fixture
def forwards(target):
    """Counts the target's forwards."""
    seen = []
    hook = target.register_forward_hook(lambda *_: seen.append(1))
    yield lambda: len(seen)
    hook.remove()


@pytest.mark.parametrize("length", [LENGTH, 16])
def test_a_batch_has_the_features_of_its_tokens(target, texts, length):
    """Those of the whole text, in pieces too, without its last token."""
    source, reads = Texts(texts), fused_layers(5)
    recorded, ends = Recorded(source, target, reads), 0
    assert recorded.recorded == len(source)
    plain = source.batches(4, length, seed=1)
    for rows, batch, (tokens, mask), _ in zip(recorded._rows(4, length, 1, 0), recorded.batches(4, length, 1), plain, range(12)):
        assert torch.equal(batch[0], tokens), "features must not change which tokens a step sees"
        for row, piece in enumerate(rows):
            text = source.texts[piece.text].tolist()
            output, known = looked_at(target, text), min(piece.stop, len(text) - 1) - piece.start
            assert batch[1][row].sum() == known
            assert mask[row].sum() - known == (piece.stop == len(text)), "the mask leaves out a text's last token, and nothing else"
            ends += piece.stop == len(text)
            for found, whole in ((batch[2], output.hidden), (batch[3], output.layers)):
                wanted = whole[0, piece.start : piece.start + known]
                torch.testing.assert_close(found[row, :known].float(), wanted, rtol=2**-8, atol=1e-3)
                assert (found[row, known:] == 0).all()
    assert ends


@pytest.mark.parametrize(("method", "changes"), [
    *((method, {}) for method in HEADS), *((method, {"draft_vocab": 0}) for method in HEADS), ("medusa", {"loss": "tokens"}),
    ("distill", {"loss": "overlap"}), ("eagle-3", {"loss": "overlap"}),
])  # fmt: skip
def test_loss_and_gradient_are_those_of_a_forward(target, texts, method, changes):
    """Of texts that are not cut in pieces. Rounding to bfloat16 moves every number of the features by at most 2^-9 of itself, each in a
    direction of its own: the loss, a mean over hundreds of tokens, moves by less than 2^-9 of itself (measured: a sixth of that). The
    gradient is a sum in which much cancels, and that of the overlap jumps where q = p: 2 % of its length (measured: 0.3 %, overlap 1 %).
    Features of the neighbouring token, the control, move it by nearly half or more."""
    source = Texts(texts)
    assert max(map(len, source.texts)) <= LENGTH
    run = begin(config(method, texts, init="random", **changes), target, source)
    tokens, mask, *features = next(Recorded(source, target, run.reads).batches(8, LENGTH, seed=1))
    shifted = [x.roll(1, dims=1) for x in features]
    results = []
    for batch in (run.look(tokens, mask), run.look(tokens, mask, *features), run.look(tokens, mask, *shifted)):
        run.head.zero_grad()
        loss = run.loss(batch)
        loss.backward()
        results.append((loss.item(), torch.cat([p.grad.flatten() for p in run.head.parameters()])))
    (wanted, slope), (found, near), (_, far) = results
    assert found == pytest.approx(wanted, rel=2**-9)
    assert (near - slope).norm() < 0.02 * slope.norm()
    assert (far - slope).norm() > 0.4 * slope.norm(), "the comparison must see features of the wrong token"


@pytest.mark.parametrize("method", HEADS)
def test_no_step_runs_the_target(target, texts, tmp_path, forwards, method):
    trained(tmp_path / "recorded", target, texts, method)
    looked = forwards()
    assert looked == 4, "of the validation texts one forward each, and of the steps none"
    trained(tmp_path / "forwards", target, texts, method, features=False)
    assert forwards() - looked == 4 + STEPS, "the control: without features every step runs the target"
    about = [read_log(tmp_path / name / "log.jsonl")[0]["about"] for name in ("recorded", "forwards")]
    assert [line["recorded"] for line in about] == [len(Texts(texts)), 0]
    cards = [card(tmp_path / name, "x.safetensors") for name in ("recorded", "forwards")]
    assert [f"of {len(Texts(texts))} texts the target's features were recorded" in text for text in cards] == [True, False]
    assert ["--no-features" in text for text in cards] == [False, True], "the card's command must make the same head"


@pytest.mark.parametrize("method", HEADS)
def test_training_resumes_to_the_same_bits(target, texts, tmp_path, monkeypatch, method):
    whole, update = trained(tmp_path / "whole", target, texts, method), trainer.update

    def doomed(run, optimizer, batch, step):
        if step == 4:
            raise KeyboardInterrupt
        return update(run, optimizer, batch, step)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "update", doomed)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "killed", target, texts, method)
    assert weights(trained(tmp_path / "killed", target, texts, method)) == weights(whole)


def test_what_was_not_recorded_is_run(target, whole, tmp_path, forwards):
    """A batch with a text of a shard without features; and a method that reads other layers than those that were kept."""
    (whole / "features-00001.safetensors").unlink()
    trained(tmp_path / "some", target, whole, "medusa")
    some = forwards()
    assert 4 < some < 4 + STEPS, "some batches lack something, and others do not"
    assert 0 < read_log(tmp_path / "some" / "log.jsonl")[0]["about"]["recorded"] < len(Texts(whole))
    source = Texts(whole)
    others = Recorded(source, target, (0, 1, 2))
    assert others.recorded == 0
    assert all(len(batch) == 2 for batch, _ in zip(others.batches(4, LENGTH, 1), range(6)))
    assert Recorded(source, target).recorded > 0, "who reads no inner layers does not mind"


def test_features_of_another_target_are_refused(texts, tmp_path):
    other = target_of_bytes(1, layers=5)
    with pytest.raises(ValueError, match=r"features-00000\.safetensors has the features of another target; .*--no-features"):
        trained(tmp_path / "a", other, texts, "medusa")
    trained(tmp_path / "b", other, texts, "medusa", features=False)
