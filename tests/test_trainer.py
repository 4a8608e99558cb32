"""Training: every method learns, a run resumes to the same bits, its files and its card, and what cannot be trained is named."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import tiny_model
from typer.testing import CliRunner

from specdec.decoding import generate
from specdec.distributions import Sampling
from specdec.drafters import DraftModel, Eagle, EagleHead, Medusa, MedusaHeads
from specdec.drafters.distilled import DistilledDraft
from specdec.models.linear import pack_linears
from specdec.training import trainer
from specdec.training.cards import card, figure
from specdec.training.commands import app
from specdec.training.config import HEADS, TrainConfig
from specdec.training.runs import begin, frequent_tokens, validate
from specdec.training.trainer import read_log, train
from specdec.tree import full_tree

V, SCORED, CHAIN = 11, 8, full_tree([1, 1, 1])
METHODS = list(HEADS)


class Listed:
    """Texts in memory, with the promise of `Texts.batches`."""

    def __init__(self, texts):
        self.texts = [np.array(text, np.uint16) for text in texts]

    def batches(self, batch_size, length, seed, start_step=0):
        for step in itertools.count(start_step):
            rows = [
                self.texts[i][:length] for i in np.random.default_rng([seed, step]).integers(len(self.texts), size=batch_size)
            ]
            tokens, mask = torch.zeros(batch_size, max(map(len, rows)), dtype=torch.long), None
            mask = torch.zeros_like(tokens, dtype=torch.bool)
            for row, text in enumerate(rows):
                tokens[row, : len(text)], mask[row, : len(text)] = torch.from_numpy(text.astype(np.int64)), True
            yield tokens, mask


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For the runs that a whole module shares too: bits depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def target(one_thread):
    return tiny_model(1, V, layers=3, scale=1.5, dtype=torch.float32)


def sampled(target, seed, n):
    """Texts of the target's own, of different lengths."""
    prompts = [[i % V, i // V] for i in range(n)]
    runs = generate(target, prompts, None, max_new_tokens=24, seed=seed)
    return Listed([prompt + run.tokens[: 10 + i % 15] for i, (prompt, run) in enumerate(zip(prompts, runs, strict=True))])


@pytest.fixture(scope="module")
def texts(target):
    return {"train_texts": sampled(target, 1, 60), "held_texts": sampled(target, 2, 30)}


def config(method, **changes):
    usual = {"steps": 8, "warmup": 3, "learning_rate": 0.02, "checkpoint_every": 3, "validate_every": 4, "validation_texts": 4}
    return TrainConfig(method, "data", **{"length": 32, "draft_vocab": SCORED} | usual | changes)


def trained(directory, method, target, texts, **options):
    changes = {name: options.pop(name) for name in list(options) if name in TrainConfig.__dataclass_fields__}
    return train(config(method, **changes), directory, target=target, **texts, **options)


def curve(directory):
    """The log without the times, which differ."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in read_log(directory / "log.jsonl")]


# Learning.


@pytest.mark.parametrize(("method", "changes"), [
    ("distill", {"init": "random"}), ("distill", {"init": "random", "loss": "overlap"}), ("distill", {"init": "spread"}),
    ("medusa", {"init": "random"}), ("medusa", {"init": "random", "loss": "tokens"}), ("eagle-1", {"init": "random"}),
    ("eagle-1", {}), ("eagle-3", {"init": "random"}), ("eagle-3", {"loss": "overlap"}), ("eagle-3", {"own_head": True}),
])  # fmt: skip
def test_every_method_learns(target, texts, tmp_path, method, changes):
    trained(tmp_path, method, target, texts, steps=40, validate_every=40, checkpoint_every=40, validation_texts=24, **changes)
    first, last = (line["validation"] for line in read_log(tmp_path / "log.jsonl") if "validation" in line)
    assert last["loss"] < first["loss"], "the held-out loss must fall"
    assert last["alpha"][0] > first["alpha"][0] + 0.04, f"greedy acceptance must rise: {first['alpha']} → {last['alpha']}"
    if changes.get("loss") != "tokens":
        assert last["overlap"][0] > first["overlap"][0]


def test_the_trained_heads_draft(target, texts, tmp_path):
    """What comes out of the files is accepted as often as validation says, and far more often than untrained."""
    drafters = {
        "distill": lambda path: DraftModel(DistilledDraft.load(path, target).beside(target), 3),
        "medusa": lambda path: Medusa(MedusaHeads.load(path, target), CHAIN),
        "eagle-1": lambda path: Eagle(EagleHead.load(path, target), tree=CHAIN),
        "eagle-3": lambda path: Eagle(EagleHead.load(path, target), tree=CHAIN),
    }
    prompts = [[i, (3 * i) % V] for i in range(0, V, 2)]
    plain = [run.tokens for run in generate(target, prompts, None, Sampling(0), max_new_tokens=12)]
    for method, build in drafters.items():
        path = trained(tmp_path / method, method, target, texts, steps=40, validate_every=40, init="random")
        runs = generate(target, prompts, build(path), Sampling(0), max_new_tokens=12)
        assert [run.tokens for run in runs] == plain, f"{method} changed the greedy text"
        rate = sum(run.stats.accepted for run in runs) / sum(run.stats.drafted for run in runs)
        assert rate > 0.25, f"{method}: {rate:.2f} of what was drafted was accepted; untrained it is about a tenth"


def test_validation_counts_real_chains(target, texts):
    """α by depth and Σ min(p, q) of a distilled draft against a loop with fresh prefills; no two depths are the same."""
    run = begin(config("distill", init="last", layers=1), target, texts["train_texts"])
    text = texts["held_texts"].texts[11].astype(np.int64).tolist()
    draft, ids = run.head.beside(target).requires_grad_(False), run.ids.tolist()
    found = validate(run, [run.look(torch.tensor([text]), torch.ones(1, len(text), dtype=torch.bool))])
    rows = []
    for n in range(1, len(text) + 1):
        p, q = (m(torch.tensor([text[:n]]), m.new_cache(n), rows=1).logits[0, 0].softmax(-1).tolist() for m in (target, draft))
        assert sum(q) == pytest.approx(1, abs=1e-6)
        assert all(q[token] == 0 for token in range(V) if token not in ids)
        rows.append((p.index(max(p)) == q.index(max(q)), sum(map(min, p, q))))
    for depth in range(1, 6):
        starts = [t for t in range(len(rows) - depth + 1) if all(same for same, _ in rows[t : t + depth - 1])]
        alpha = sum(rows[t + depth - 1][0] for t in starts) / max(len(starts), 1)
        assert found.alpha[depth - 1] == pytest.approx(alpha, abs=1e-9)
        overlap = sum(shared for _, shared in rows[depth - 1 :]) / (len(rows) - depth + 1)
        assert found.overlap[depth - 1] == pytest.approx(overlap, abs=1e-5)
    assert found.tau == pytest.approx(1 + sum(np.prod(found.alpha[:d]) for d in range(1, 6)))


@pytest.mark.parametrize(("method", "changes"), [
    *((method, {}) for method in METHODS), ("distill", {"loss": "overlap"}), ("medusa", {"loss": "tokens"}),
    ("eagle-3", {"loss": "overlap"}), *((method, {"draft_vocab": 0}) for method in METHODS),
])  # fmt: skip
def test_padding_does_not_count(target, texts, method, changes):
    """A text alone, and the same text in a batch whose other row is all padding but for one token: loss and gradient are equal."""
    run = begin(config(method, **changes), target, texts["train_texts"])
    text = torch.from_numpy(texts["train_texts"].texts[5].astype(np.int64))
    tokens, mask = torch.randint(0, V, (2, len(text) + 6)), torch.zeros(2, len(text) + 6, dtype=torch.bool)
    tokens[0, : len(text)], mask[0, : len(text)] = text, True
    results = []
    for batch in (run.look(text[None], torch.ones(1, len(text), dtype=torch.bool)), run.look(tokens, mask)):
        run.head.zero_grad()
        loss = run.loss(batch)
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in run.head.parameters())])
    for alone, padded in zip(*results, strict=True):
        torch.testing.assert_close(padded, alone, rtol=1e-4, atol=1e-6, msg="padding changed the loss or its gradient")


def test_a_batch_shorter_than_a_chain_is_padded(target, texts):
    for method in METHODS:
        run = begin(config(method), target, texts["train_texts"])
        batch = run.look(torch.ones(2, 2, dtype=torch.long), torch.ones(2, 2, dtype=torch.bool))
        assert run.loss(batch).isfinite()


# The same weights.


class Killed(Exception):
    pass


def weights(path):
    """The bits of every tensor."""
    return {name: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in load_file(path).items()}


@pytest.fixture(scope="module")
def whole(target, texts, tmp_path_factory):
    """One undisturbed run of each method."""
    runs = {}
    for method in METHODS:
        runs[method] = tmp_path_factory.mktemp(method)
        trained(runs[method], method, target, texts)
    return runs


def kill_at(step, monkeypatch):
    update = trainer.update

    def doomed(run, optimizer, batch, now):
        if now == step:
            raise Killed
        return update(run, optimizer, batch, now)

    monkeypatch.setattr(trainer, "update", doomed)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("step", [2, 5, 8])
def test_killed_and_resumed_it_ends_at_the_same_bits(target, texts, tmp_path, monkeypatch, whole, method, step):
    with monkeypatch.context() as patch:
        kill_at(step, patch)
        with pytest.raises(Killed):
            trained(tmp_path, method, target, texts)
    path = trained(tmp_path, method, target, texts)
    assert weights(path) == weights(whole[method] / "weights.safetensors"), "resuming must end at the same weights"
    assert curve(tmp_path) == curve(whole[method])


def test_a_damaged_checkpoint_is_left_out(target, texts, tmp_path, whole, capsys):
    trained(tmp_path, "eagle-1", target, texts, stop_after=7)
    newest, _ = trainer.checkpoints(tmp_path)
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    path = trained(tmp_path, "eagle-1", target, texts)
    assert f"{newest.name} is damaged and left out" in capsys.readouterr().err
    assert weights(path) == weights(whole["eagle-1"] / "weights.safetensors")
    assert curve(tmp_path) == curve(whole["eagle-1"])
    for checkpoint in trainer.checkpoints(tmp_path):
        checkpoint.write_bytes(b"")
    assert weights(trained(tmp_path, "eagle-1", target, texts)) == weights(whole["eagle-1"] / "weights.safetensors")


def test_killed_while_it_writes_a_checkpoint(target, texts, tmp_path, monkeypatch, whole):
    save = torch.save

    def torn(state, path):
        save(state, path)
        if state["at"]["step"] == 6:
            path.write_bytes(path.read_bytes()[:100])
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", torn)
        with pytest.raises(Killed):
            trained(tmp_path, "distill", target, texts)
    assert [path.name for path in trainer.checkpoints(tmp_path)] == ["checkpoint-00000003.pt"], (
        "a torn file must not get the name"
    )
    with open(tmp_path / "log.jsonl", "a") as log:
        log.write('{"step": 7, "lo')  # the log may be torn as well
    path = trained(tmp_path, "distill", target, texts)
    assert weights(path) == weights(whole["distill"] / "weights.safetensors")
    assert curve(tmp_path) == curve(whole["distill"])


def test_a_part_of_a_run_is_its_beginning(target, texts, tmp_path, whole):
    trained(tmp_path, "medusa", target, texts, stop_after=2)
    begun = curve(tmp_path)
    assert begun == curve(whole["medusa"])[:3], "the schedule must not depend on where a run is stopped"
    assert len(begun) == 3
    trained(tmp_path, "medusa", target, texts, seed=1, resume=False, stop_after=2)
    assert curve(tmp_path)[1]["loss"] != begun[1]["loss"], "another seed must give other batches"


def test_at_most_two_checkpoints_stay(whole):
    for directory in whole.values():
        names = [path.name for path in trainer.checkpoints(directory)]
        assert names == ["checkpoint-00000008.pt", "checkpoint-00000006.pt"]
        assert not list(directory.glob("writing-*")), "no scratch directory may stay behind"


def test_the_schedule():
    c = TrainConfig("distill", "x", steps=100, warmup=10, learning_rate=2.0, final_rate=0.25)
    assert [c.rate(step) for step in (0, 4, 9, 10)] == pytest.approx([0.2, 1.0, 2.0, 2.0])
    assert c.rate(55) == pytest.approx(1.25)
    assert c.rate(100) == pytest.approx(0.5)
    assert all(c.rate(step) > c.rate(step + 1) for step in range(10, 100))


# Where training begins.


def test_a_draft_of_all_layers_is_the_target(target, texts):
    """Copies of the first layers are `truncated`; of all of them, the target itself. The same with packed weights."""
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    packed = tiny_model(1, V, layers=3, scale=1.5, dtype=torch.float32)
    pack_linears(packed)
    for model, atol in ((target, 1e-5), (packed, 2e-2)):
        for layers in (1, 3):
            wanted = target.truncated(layers)(tokens, target.truncated(layers).new_cache(5)).logits
            for ids in (None, [0, 2, 3, 7]):
                draft = DistilledDraft.copied(model, range(layers), ids).requires_grad_(False).beside(model)
                logits = draft(tokens, draft.new_cache(5)).logits
                kept = list(range(V)) if ids is None else ids
                torch.testing.assert_close(logits[..., kept], wanted[..., kept], rtol=0, atol=atol)
                assert (logits[..., [token for token in range(V) if token not in kept]] == -torch.inf).all()


def test_the_whole_text_at_once_equals_the_model_with_a_cache(target):
    draft = DistilledDraft.random(target, 2, [1, 4, 6], seed=3).requires_grad_(False)
    tokens, model = torch.tensor([[3, 1, 4, 1, 5], [2, 2, 0, 9, 10]]), draft.beside(target)
    wanted = model(tokens, model.new_cache(5, 2)).hidden
    torch.testing.assert_close(draft(target, tokens), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_copies_begin_nearer_to_the_target(target, texts, method):
    held, found = torch.from_numpy(texts["held_texts"].texts[20].astype(np.int64)), {}
    for init in ("random", "spread" if method == "distill" else "target"):
        run = begin(config(method, init=init), target, texts["train_texts"])
        found[init == "random"] = validate(run, [run.look(held[None], torch.ones(1, len(held), dtype=torch.bool))])
    assert method == "eagle-1" or found[False].overlap[0] > found[True].overlap[0]
    assert found[False] != found[True]


def test_frequent_tokens():
    texts = Listed([[5, 5, 5, 2, 2], [9, 9, 1]])
    assert frequent_tokens(texts, 3, V).tolist() == [2, 5, 9]
    assert frequent_tokens(texts, 6, V).tolist() == [0, 1, 2, 3, 5, 9]
    with pytest.raises(ValueError, match=r"draft_vocab must lie in \[1, 11\], got 12"):
        frequent_tokens(texts, 12, V)
    with pytest.raises(ValueError, match="the texts have the id 9, and the target's vocabulary has 7 tokens"):
        frequent_tokens(texts, 3, 7)


# Errors, files, cards.


@pytest.mark.parametrize(("changes", "message"), [
    ({"method": "eagle-2"}, "method must be one of gpt, distill, medusa, eagle-1, eagle-3, got 'eagle-2'"),
    ({"method": "medusa", "layers": 2}, "medusa has no layers, got 2; it has init, loss, draft_vocab, heads"),
    ({"method": "eagle-1", "loss": "kl"}, "eagle-1 has no loss"),
    ({"init": "target"}, r"init of distill must be one of \('first', 'last', 'spread', 'random'\), got 'target'"),
    ({"method": "eagle-3", "loss": "tokens"}, r"loss of eagle-3 must be one of \('kl', 'overlap'\), got 'tokens'"),
    ({"steps": 0}, "steps must be a whole number >= 1, got 0"),
    ({"layers": 0}, "layers must be a whole number >= 1, got 0"),
    ({"length": 15}, "length must be a whole number >= 16, got 15"),
    ({"draft_vocab": -1}, "draft_vocab must be a whole number >= 0, got -1"),
    ({"learning_rate": 0}, "learning_rate must be a number > 0, got 0"),
    ({"learning_rate": float("nan")}, "learning_rate must be a number > 0, got nan"),
    ({"final_rate": 1.5}, r"final_rate must be a number in \[0, 1\], got 1.5"),
    ({"clip": "1"}, "clip must be a number > 0, got '1'"),
])  # fmt: skip
def test_a_bad_configuration_names_the_value(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**{"method": "distill", "data": "x"} | changes)


def test_the_configuration_survives_json():
    for method in METHODS:
        assert TrainConfig.from_json(config(method).to_json()) == config(method)
    for text in ("{", '{"method": "distill", "data": "x", "depth": 3}'):
        with pytest.raises(ValueError, match="not the configuration of a training run"):
            TrainConfig.from_json(text)


def test_eagle_is_eagle_3(commands, whole, tmp_path):
    assert config("eagle") == config("eagle-3")
    assert config("distilled") == config("distill"), "as the drafter is called"
    with pytest.raises(ValueError, match="eagle-3 has no heads, got 2"):
        config("eagle", heads=2)
    words = config("eagle-3").command(str(tmp_path / "e.safetensors")).split()
    result = commands(words[1], "eagle", *words[3:])
    assert result.exit_code == 0, result.output
    assert weights(tmp_path / "e.safetensors") == weights(whole["eagle-3"] / "weights.safetensors")
    assert " ".join(words) in result.output, "the card must name the method itself"
    assert "eagle is eagle-3" in " ".join(commands("train", "--help").output.split())


def test_a_directory_belongs_to_one_run(target, texts, tmp_path):
    trained(tmp_path, "distill", target, texts, stop_after=1)
    with pytest.raises(ValueError, match=r"holds a run with seed = 0 \(not 1\); choose .* \(--run\), or begin anew \(--fresh\)"):
        trained(tmp_path, "distill", target, texts, seed=1)
    other = Listed([[10, 10, 0, 9, 9, 8, 7, 6, 5, 4, 3]])
    with pytest.raises(ValueError, match=r"the data have changed since .*checkpoint-00000001\.pt was written"):
        trained(tmp_path, "distill", target, texts | {"train_texts": other})


SLIPS = {
    "data that are not there": lambda target, texts: {"target": target},
    "texts that are too short": lambda target, texts: {"target": target} | texts | {"held_texts": Listed([[1, 2, 3]])},
    "a token that no target has": lambda target, texts: {"target": target} | texts | {"train_texts": Listed([[1, 99] * 9])},
    "a model that is not there": lambda target, texts: texts,
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_takes_no_directory_and_costs_no_run(target, texts, tmp_path, slip):
    """The next attempt may be another configuration; and a run that was to be begun anew is still there."""
    out, wrong = tmp_path / "run", SLIPS[slip](target, texts)
    with pytest.raises(ValueError):
        train(config("distill", model="absent", batch=4), out, **wrong)
    assert not out.exists()
    trained(out, "distill", target, texts, stop_after=1, seed=1)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ValueError):
        train(config("distill", model="absent", batch=4), out, resume=False, **wrong)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_what_cannot_be_trained(target, texts, tmp_path):
    with pytest.raises(ValueError, match="of the first 4 held-out texts none has 7 tokens or more"):
        trained(tmp_path / "short", "distill", target, texts | {"held_texts": Listed([[1, 2, 3]])}, batch=4)
    with pytest.raises(ValueError, match="the target has 3 layers to copy, and the draft is to have 4"):
        trained(tmp_path / "deep", "distill", target, texts, layers=4)
    with pytest.raises(ValueError, match="stop_after must be >= 1, got 0"):
        trained(tmp_path, "distill", target, texts, stop_after=0)
    ill = tiny_model(1, V, layers=3, dtype=torch.float32)
    ill.norm.weight[0] = float("nan")
    with pytest.raises(ValueError, match=r"the loss of step 1 is nan; a lower learning rate than 0\.02 may help"):
        trained(tmp_path / "ill", "medusa", ill, texts)


@pytest.fixture
def commands(target, texts, monkeypatch):
    """The command line with the tiny target and its texts in place of what is on the disk."""
    monkeypatch.setattr(trainer, "load_model", lambda *_: target)
    monkeypatch.setattr(trainer, "_texts", lambda _, split, target: texts["train_texts" if split == "train" else "held_texts"])
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_of_a_card_makes_the_same_head(commands, whole, tmp_path):
    for method in METHODS:
        to, again = tmp_path / f"{method}.safetensors", tmp_path / "again" / f"{method}.safetensors"
        words = config(method).command(str(to)).split()
        assert words[0] == "specdec"
        result = commands(*words[1:])
        assert result.exit_code == 0, result.output
        assert weights(to) == weights(whole[method] / "weights.safetensors")
        printed = next(line for line in result.output.splitlines() if line.startswith("specdec train"))
        assert printed.split() == words
        assert commands(*config(method).command(str(again)).split()[1:], "--stop-after", 2).exit_code == 0
        assert curve(tmp_path / "again" / f"{method}.run") == curve(whole[method])[:3]


def test_the_command_says_how_a_run_goes_on(commands, whole, tmp_path):
    to = tmp_path / "m.safetensors"
    words = config("medusa").command(str(to)).split()[1:]
    stopped = commands(*words, "--stop-after", 3)
    assert "Begins in" in stopped.stderr
    assert "the same command goes on from its newest checkpoint; --fresh begins anew" in stopped.stderr
    assert "Stopped at step 3 of 8; the same command without --stop-after goes on." in stopped.stderr
    again = commands(*words)
    assert "Goes on after checkpoint-00000003" in again.stderr
    assert weights(to) == weights(whole["medusa"] / "weights.safetensors")
    other = commands(*words, "--seed", 1)
    assert other.exit_code == 2
    assert "--fresh" in other.stderr
    assert "Begins in" in commands(*words, "--seed", 1, "--fresh", "--stop-after", 1).stderr


def test_the_card_says_what_the_log_says(whole, commands, tmp_path):
    log = read_log(whole["eagle-3"] / "log.jsonl")
    text = card(whole["eagle-3"], "weights/eagle-3.safetensors")
    assert text.startswith("### eagle-3.safetensors\n")
    assert f"{log[-1]['tokens']:,} tokens" in text
    for step in (0, 4, 8):
        v = log[step]["validation"]
        loss = f"{np.mean([line['loss'] for line in log[1 : step + 1]]):.3f}" if step else "–"
        alphas = " ".join(f"{alpha:.2f}".removeprefix("0") for alpha in v["alpha"])
        assert f"| {step} | {log[step]['tokens']:,} | {loss} | {v['loss']:.3f} | {alphas} |" in text
    picture = tmp_path / "curves.png"
    result = commands("card", whole["eagle-3"], "--to", "weights/eagle-3.safetensors", "--figure", picture)
    assert result.output.rstrip() == text.rstrip()
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"has no config\.json: it is no directory of a training run"):
        figure(tmp_path, picture)


def test_errors_of_the_command_line(commands, tmp_path):
    result = commands("train", "medusa", "--data", "x", "--to", tmp_path / "m.safetensors", "--ttt-steps", 3)
    assert result.exit_code == 2
    assert "medusa has no ttt_steps, got 3" in " ".join(result.stderr.split())
    assert not list(tmp_path.iterdir()), "nothing may be written before the error"


def test_every_value_can_be_said_on_the_command_line(commands):
    text = " ".join(commands("train", "--help").output.split())
    for name in TrainConfig.__dataclass_fields__:
        assert name == "method" or f"--{name.replace('_', '-')}" in text


def test_the_log_is_one_object_a_line(whole):
    lines = (whole["distill"] / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(9))
    assert replace(config("distill"), seed=3).seed == 3
