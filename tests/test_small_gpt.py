"""The small GPT: its characters, its training from the first step to a directory that is a model, and the files that are shipped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from typer.testing import CliRunner

from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import DraftModel, Medusa, MedusaHeads
from specdec.drafters.distilled import DistilledDraft
from specdec.models import load_model
from specdec.training import small_gpt, trainer
from specdec.training.cards import card, figure
from specdec.training.commands import _place, app
from specdec.training.config import TrainConfig
from specdec.training.runs import begin, validate
from specdec.training.small_gpt import CHARACTERS, Documents, character_tokenizer, new_gpt, next_token_loss, save_gpt
from specdec.training.trainer import read_log, train
from specdec.tree import full_tree

WEIGHTS = Path(small_gpt.__file__).parents[1] / "weights" / "shakespeare-gpt"
CHAIN = full_tree([1, 1, 1])
PARTS = {
    "train": {"a": "to be or not to be that is\n" * 40, "b": "not to be is to be not\n" * 30},
    "held_out": {"c": "to be that is not\n" * 20},
}


@pytest.fixture
def plays(monkeypatch):
    """Two short plays in place of Shakespeare's, which would have to be fetched."""
    monkeypatch.setattr(small_gpt, "documents", lambda source, split: PARTS[split])


def config(**changes):
    usual = {"steps": 8, "warmup": 2, "learning_rate": 0.01, "checkpoint_every": 3, "validate_every": 4, "validation_texts": 4}
    shape = {"layers": 2, "hidden_size": 32, "length": 32, "batch": 4}
    return TrainConfig("gpt", "shakespeare", **usual | shape | changes)


def bits(directory):
    return {
        name: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in load_file(directory / "model.safetensors").items()
    }


def curve(directory):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in read_log(directory / "log.jsonl")]


# Characters.


def test_a_text_is_its_characters(tmp_path):
    tokenizer, text = character_tokenizer(), "HAMLET. To be,  or\n\n not [to] be?\n"
    ids = tokenizer.encode(text)
    assert [CHARACTERS[id] for id in ids] == list(text), "every character must have its own id"
    assert tokenizer.decode(ids) == text, "decoding must put nothing between characters, and drop none"
    assert tokenizer.decode(tokenizer.encode("né\t")) == "n\ufffd\ufffd", "an unknown character must not vanish"
    assert len(set(CHARACTERS)) == 97


def test_documents_are_whole_and_apart(plays):
    found = {split: Documents("shakespeare", split, character_tokenizer()) for split in PARTS}
    for split, texts in found.items():
        assert [character_tokenizer().decode(text.tolist()) for text in texts.texts] == list(PARTS[split].values())
    first, again = (next(found["train"].batches(4, 32, seed=1, start_step=7))[0] for _ in range(2))
    assert first.shape[1] <= 32
    assert torch.equal(first, again), "a step must be a function of (seed, step)"
    with pytest.raises(ValueError, match="the target has no tokenizer for the texts of shakespeare"):
        Documents("shakespeare", "train", None)


# The loss.


def test_the_loss_is_that_of_the_model_with_a_cache():
    model = new_gpt(config())
    tokens, mask = torch.randint(0, 97, (2, 12)), torch.ones(2, 12, dtype=torch.bool)
    mask[1, 7:] = False
    slow = []
    for row, length in ((0, 12), (1, 7)):
        logits = model(tokens[row : row + 1, :length], model.new_cache(length)).logits[0, :-1]
        slow += F.cross_entropy(logits, tokens[row, 1:length], reduction="none").tolist()
    loss = next_token_loss(model, tokens, mask)
    assert loss.item() == pytest.approx(sum(slow) / 17, abs=1e-5), "17 tokens have one before them"
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 0, f"the gradient must reach {name}"


def test_training_begins_near_the_uniform_distribution():
    """So that no step is spent on unlearning; another seed is another model, the same seed the same."""
    tokens, mask = torch.randint(0, 97, (4, 32)), torch.ones(4, 32, dtype=torch.bool)
    assert next_token_loss(new_gpt(config()), tokens, mask).item() < torch.tensor(97.0).log() + 1
    first, same, other = (new_gpt(config(seed=seed)).embedding.weight for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    layer = new_gpt(config(layers=3)).layers[1].attention
    assert layer.out.weight.std().item() == pytest.approx(192**-0.5, rel=0.1), "6 products of 32 inputs are added up"
    assert layer.qkv.weight.std().item() == pytest.approx(32**-0.5, rel=0.1)


# A run.


def test_it_learns(plays, tmp_path):
    made = train(config(steps=60, validate_every=60), tmp_path)
    first, last = (line["validation"] for line in read_log(tmp_path / "log.jsonl") if "validation" in line)
    assert last["loss"] < first["loss"] - 1.5, f"the held-out loss must fall: {first['loss']:.2f} → {last['loss']:.2f}"
    model = load_model(made, dtype=torch.float32)
    tokens = next(Documents("shakespeare", "held_out", model.tokenizer).batches(1, 32, 0))[0][0]
    logits = model(tokens[None], model.new_cache(len(tokens))).logits[0, :-1]
    assert F.cross_entropy(logits, tokens[1:]).item() < 2.2, "what load_model reads must have learned, too"


class Killed(Exception):
    pass


def killed_at(step, monkeypatch, *arguments, **options):
    update = trainer.update

    def doomed(run, optimizer, batch, now):
        if now == step:
            raise Killed
        return update(run, optimizer, batch, now)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "update", doomed)
        with pytest.raises(Killed):
            train(*arguments, **options)


@pytest.mark.parametrize("step", [2, 5, 8])
def test_killed_and_resumed_it_ends_at_the_same_bits(plays, tmp_path, monkeypatch, step):
    killed_at(step, monkeypatch, config(), tmp_path / "killed")
    resumed, whole = train(config(), tmp_path / "killed"), train(config(), tmp_path / "whole")
    assert bits(resumed) == bits(whole), "resuming must end at the same weights"
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")


def test_a_paused_run_stores_what_it_has_so_far(plays, tmp_path, monkeypatch):
    paused = bits(train(config(), tmp_path / "paused", stop_after=4))
    whole = bits(train(config(), tmp_path / "whole"))
    assert paused != whole
    assert bits(train(config(), tmp_path / "paused")) == whole, "going on must replace the model of the pause"
    killed_at(2, monkeypatch, config(), tmp_path / "paused", resume=False)
    assert not (tmp_path / "paused" / "model").exists(), "a run that begins anew must not keep the old one's model"


# Its files.


def test_the_round_trip_through_load_model(tmp_path):
    model = new_gpt(config(layers=3))
    save_gpt(model, tmp_path)
    loaded = load_model(tmp_path, dtype=torch.float32)
    assert loaded.config == model.config
    assert loaded.tokenizer.same_vocabulary(model.tokenizer)
    for name, tensor in model.half().float().state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), f"{name} must be what was stored, rounded to float16"
    text = generate(loaded, "To be", None, Sampling(0), max_new_tokens=8)
    assert len(text.tokens) == 8


def test_a_directory_with_a_configuration_is_whole(tmp_path, monkeypatch):
    save_gpt(new_gpt(config()), tmp_path)

    def torn(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(small_gpt, "save_file", torn)
        with pytest.raises(Killed):
            save_gpt(new_gpt(config(layers=1)), tmp_path)
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        load_model(tmp_path)
    save_gpt(new_gpt(config(layers=1)), tmp_path)
    assert load_model(tmp_path).config.layers == 1
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}


def test_a_copy_with_a_configuration_is_whole(tmp_path, monkeypatch):
    """The command copies the run's model to where it was asked to; killed at the weights, it leaves nothing that can be loaded."""
    made, to, whole_file = tmp_path / "made", tmp_path / "to", trainer.whole_file
    save_gpt(new_gpt(config()), made)
    _place(made, to)
    assert load_model(to).config == new_gpt(config()).config

    def torn(path):
        if path.name == "model.safetensors":
            raise Killed
        return whole_file(path)

    monkeypatch.setattr(trainer, "whole_file", torn)
    with pytest.raises(Killed):
        _place(made, to)
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        load_model(to)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_commands_make_a_target_and_what_drafts_for_it(plays, tmp_path):
    gpt, small = tmp_path / "gpt", ("--steps", 6, "--warmup", 1, "--length", 32, "--validation-texts", 4, "--validate-every", 3)
    printed = run("train", "gpt", "--data", "shakespeare", "--to", gpt, "--layers", 2, "--hidden-size", 32, *small)
    assert f"specdec train gpt --data shakespeare --to {gpt} " in printed
    assert "| step | tokens | training loss | held-out loss |\n" in printed, "a gpt has no α to show"
    target = load_model(gpt, dtype=torch.float32)
    for method in ("medusa", "distill"):
        to = tmp_path / f"{method}.safetensors"
        printed = run("train", method, "--data", "shakespeare", "--model", gpt, "--to", to, "--draft-vocab", 0, *small)
        assert "α by depth" in printed
    MedusaHeads.load(tmp_path / "medusa.safetensors", target)
    DistilledDraft.load(tmp_path / "distill.safetensors", target)
    assert card(tmp_path / "gpt.run", str(gpt)) in run("card", tmp_path / "gpt.run", "--to", gpt)
    figure(tmp_path / "gpt.run", tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    run("train", "gpt", "--data", "shakespeare", "--to", gpt, "--layers", 1, "--hidden-size", 32, "--fresh", *small)
    assert load_model(gpt).config.layers == 1, "a new model must take the old one's place"


@pytest.mark.parametrize(("changes", "message"), [
    ({"model": "smollm2-135m"}, "gpt has no model, got 'smollm2-135m'; it has layers, hidden_size"),
    ({"hidden_size": 48}, "hidden_size must be a multiple of 32, got 48"),
    ({"hidden_size": 0}, "hidden_size must be a whole number >= 1, got 0"),
    ({"draft_vocab": 0}, "gpt has no draft_vocab, got 0"),
])  # fmt: skip
def test_a_bad_configuration_names_the_value(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_the_configuration_survives_json():
    assert TrainConfig.from_json(config().to_json()) == config()
    assert "hidden_size" not in TrainConfig.from_json('{"method": "medusa", "data": "x", "model": "y"}').command("z")


# What is shipped.

PROMPTS = (
    "ROMEO. ",
    "  Enter the KING, and attendants\n\n",
    "What is a name? ",
    "My lord, I ",
    "ROSALIND. Good my ",
    "O, that ",
)


@pytest.fixture(scope="module")
def shipped():
    return load_model("shakespeare-gpt", dtype=torch.float32)


@pytest.fixture(scope="module")
def plain(shipped):
    return [run.tokens for run in generate(shipped, PROMPTS, None, Sampling(0), max_new_tokens=200)]


def drafters(target):
    """With the shipped weights, and what is there without any training."""
    heads = MedusaHeads.load(WEIGHTS / "medusa.safetensors", target)
    distilled = DistilledDraft.load(WEIGHTS / "distilled.safetensors", target)
    layers = distilled.config.layers
    return {
        "medusa": (Medusa(heads, CHAIN), Medusa(MedusaHeads.random(target, 3), CHAIN)),
        "distilled": (DraftModel(distilled.beside(target), 3), DraftModel(target.truncated(layers), 3)),
    }


@pytest.mark.parametrize("name", ["medusa", "distilled"])
def test_shipped_weights_change_no_text_and_are_accepted(shipped, plain, name):
    rates = []
    for drafter in drafters(shipped)[name]:
        runs = generate(shipped, PROMPTS, drafter, Sampling(0), max_new_tokens=200)
        assert [run.tokens for run in runs] == plain, f"{name} changed the greedy text"
        rates.append(sum(run.stats.accepted for run in runs) / sum(run.stats.drafted for run in runs))
    trained, untrained = rates
    assert trained > untrained + 0.1, (
        f"{name}: {trained:.2f} of what was drafted was accepted, {untrained:.2f} without training"
    )


def test_the_shipped_model_and_heads_have_the_shapes_that_they_should(shipped):
    about = shipped.config
    assert (about.vocab_size, about.hidden_size, about.layers, about.heads, about.max_length) == (97, 128, 4, 4, 384)
    assert sum(p.numel() for p in shipped.parameters()) == 865_536
    heads = MedusaHeads.load(WEIGHTS / "medusa.safetensors", shipped)
    distilled = DistilledDraft.load(WEIGHTS / "distilled.safetensors", shipped)
    assert heads(shipped, torch.zeros(2, 128)).shape == (2, 3, 97), "three heads over all characters"
    assert distilled(shipped, torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 128)
    assert (distilled.config.layers, distilled.config.draft_vocab) == (1, None)


def card_alpha(name):
    """α by depth in the last row of a file's card; heads for SmolLM2 have cards of the same names."""
    cards = (WEIGHTS.parent / "README.md").read_text().partition("## The small GPT")[2]
    part = cards.partition(f"### {name}\n")[2].partition("###")[0]
    return [float(value) for value in part.strip().splitlines()[-1].split("|")[5].split()]


@pytest.mark.model
@pytest.mark.parametrize("name", ["medusa", "distilled"])
def test_the_cards_say_how_often_the_shipped_drafts_are_accepted(name):
    """On the very texts of the cards, in bfloat16 as there. The cards round by .005; another machine's kernels may move a tie."""
    changes = {"medusa": {}, "distilled": {"init": "first", "layers": 1}}[name]
    method = {"medusa": "medusa", "distilled": "distill"}[name]
    target = load_model("shakespeare-gpt")
    held = Documents("shakespeare", "held_out", target.tokenizer)
    run = begin(TrainConfig(method, "shakespeare", "shakespeare-gpt", draft_vocab=0, validation_texts=48, **changes), target, held)
    run.head.load_state_dict(load_file(WEIGHTS / f"{name}.safetensors"))
    found, said = validate(run, trainer.held_out(run, held)).alpha, card_alpha(f"{name}.safetensors")
    assert len(found) == len(said)
    for depth, (alpha, number) in enumerate(zip(found, said, strict=True), 1):
        assert alpha == pytest.approx(number, abs=0.01), f"{name} at depth {depth}: the card says {number}, found {alpha:.3f}"


def test_the_shipped_files_are_what_the_readme_says():
    about = json.loads((WEIGHTS / "config.json").read_text())
    text = (WEIGHTS.parent / "README.md").read_text()
    assert f"{about['num_hidden_layers']} layers of {about['hidden_size']}" in text
    assert sum(path.stat().st_size for path in WEIGHTS.iterdir()) < 3e6, "what is shipped must stay small"
    for path in WEIGHTS.glob("*.safetensors"):
        assert {tensor.dtype for tensor in load_file(path).values()} == {torch.float16}, (
            f"{path.name} must be in half precision"
        )
        assert f"shakespeare-gpt/{path.name}" in text
