"""`specdec bench` on a tiny model with bytes for tokens: every method runs, a killed run goes on, the tables hold the JSON's numbers."""

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import replace
from statistics import geometric_mean

import pytest
import torch
import typer
from tokenizers.pre_tokenizers import ByteLevel
from typer.testing import CliRunner

from specdec import bench as bench_module
from specdec.bench import DEFAULT, JOINED, TUNED, bench, drafter_of, settings_of
from specdec.cli import app as cli
from specdec.config import Config
from specdec.drafters import Combine, Eagle, EagleHead, MedusaHeads
from specdec.forwards import forward_costs
from specdec.measure import PLAIN, quartiles
from specdec.methods import HEADS, METHODS, has_random_heads
from specdec.models.tokenizer import CONTROL, from_gguf_fields
from specdec.models.transformer import random_model
from specdec.results import Round
from specdec.tables import details, headline, losers, markdown, overview
from specdec.workloads import WORKLOADS
from specdec.workloads.code import FILES
from specdec.workloads.summary import PASSAGES

TEMPLATE = "{% for m in messages %}<user>{{ m.content }}{% endfor %}<answer>"


@pytest.fixture(scope="module")
def target():
    """The alphabet of byte-level tokenizers, and a token that ends a text."""
    tokens = sorted(ByteLevel.alphabet())
    tokenizer = from_gguf_fields([*tokens, "<end>"], [1] * len(tokens) + [CONTROL], [], TEMPLATE, {"eos_token": len(tokens)})
    model = random_model(Config(257, 16, 12, 4, 2, 4, 32, max_length=2048), 0, scale=2.0)
    model.tokenizer = tokenizer
    return model


@pytest.fixture
def run(target, monkeypatch, tmp_path) -> Callable:
    """Runs the command and returns (its result, the stored JSON)."""
    monkeypatch.setattr(bench_module, "load_model", lambda *_: target)
    short = {name: replace(one, texts=tuple(text[-60:] for text in one.texts)) for name, one in WORKLOADS.items()}
    monkeypatch.setattr(bench_module, "WORKLOADS", short)
    monkeypatch.setattr(bench_module, "forward_costs", lambda target, widths: forward_costs(target, widths, 16, repeats=1))
    app = typer.Typer()
    app.command()(bench)

    def invoke(*arguments, out=tmp_path, stem="bench_quick"):
        result = CliRunner().invoke(app, ["--out", str(out), "--weights", str(tmp_path), *map(str, arguments)])
        stored = out / f"{stem}.json"
        return result, json.loads(stored.read_text()) if stored.exists() else None

    return invoke


def test_every_method_runs_at_both_temperatures(run, tmp_path):
    result, stored = run("--quick", "--tokens", 6, "--repeats", 1, "--workload", "code", "--workload", "chat")
    assert result.exit_code == 0, result.output
    assert [(part["workload"], part["temperature"]) for part in stored["parts"]] == [
        ("code", 0), ("chat", 0), ("code", 1), ("chat", 1)
    ]  # fmt: skip
    for part in stored["parts"]:
        assert list(part["rows"]) == [PLAIN, *METHODS, *JOINED], "every method must have a row"
        for name, row in part["rows"].items():
            assert row["random"] == any(part in HEADS for part in name.split("+")), "rows with random heads must be marked"
            assert row["tau"] >= 1
            assert (row["predicted"] is None) == (name == PLAIN)
            assert part["temperature"] or not row["parted"], "in float32 greedy texts are equal here"
    assert set(stored["parts"][2]["limits"]["overlaps"]) >= {"draft-model", "eagle-1", "eagle-2", "eagle-3"}
    assert stored["parts"][0]["limits"] is None
    assert stored["about"]["threads"] == torch.get_num_threads()
    assert stored["about"]["machine"]
    assert (tmp_path / "bench_quick.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "bench_quick.parts").exists(), "a finished run leaves no parts behind"
    assert "T = 0" in result.output
    assert "medusa (random heads)" in (tmp_path / "bench_quick.md").read_text()


ONE = ("--quick", "--tokens", 6, "--repeats", 1, "--methods", "prompt-lookup", "--workload", "chat", "--workload", "code")


def test_a_killed_run_goes_on_where_it_stopped(run, monkeypatch, tmp_path):
    measured, compare = [], bench_module.compare

    def dies_at(number):
        def dying(target, drafters, prompts, sampling, *more):
            if len(measured) == number:
                raise KeyboardInterrupt
            measured.append((len(prompts[0]), sampling.temperature))
            return compare(target, drafters, prompts, sampling, *more)

        return dying

    monkeypatch.setattr(bench_module, "compare", dies_at(3))
    result, stored = run(*ONE)
    assert result.exit_code != 0
    assert stored is None
    parts = tmp_path / "bench_quick.parts"
    assert sorted(p.name for p in parts.iterdir()) == ["chat-0.json", "chat-1.json", "code-0.json", "verify.json"]
    before = {path.name: json.loads(path.read_text())["part"] for path in parts.iterdir()}
    monkeypatch.setattr(bench_module, "compare", dies_at(None))
    result, stored = run(*ONE)
    assert result.exit_code == 0, result.output
    assert len(measured) == 4, "finished parts must not be measured again"
    assert stored["parts"][:3] == [before[name] for name in ("chat-0.json", "code-0.json", "chat-1.json")]
    assert stored["verify"] == before["verify.json"]


def test_parts_of_other_settings_are_measured_again(run, monkeypatch, tmp_path):
    run(*ONE, "--temperature", 0)
    stale = {"about": {"tokens": 5}, "part": {"workload": "chat", "rows": "stale"}}
    (tmp_path / "bench_quick.parts").mkdir()
    (tmp_path / "bench_quick.parts" / "chat-0.json").write_text(json.dumps(stale))
    result, stored = run(*ONE, "--temperature", 0)
    assert result.exit_code == 0, result.output
    assert stored["parts"][0]["rows"] != "stale"


@pytest.mark.parametrize(("arguments", "message"), [
    (("--workload", "poems"), "unknown workload 'poems'; choose from code, chat, summary, shakespeare"),
    (("--methods", "oracle"), "unknown method 'oracle'; choose from draft-model"),
    (("--methods", "none+medusa"), "unknown method 'none'"),
    (("--temperature", "-1"), "temperature must be a finite number >= 0, got -1"),
])  # fmt: skip
def test_wrong_values_are_named_before_anything_is_measured(run, monkeypatch, arguments, message):
    monkeypatch.setattr(bench_module, "compare", lambda *_: pytest.fail("measured before the arguments were checked"))
    result, _ = run("--quick", *arguments)
    assert isinstance(result.exception, ValueError), result.output
    assert message in str(result.exception)


def test_the_defaults_suit_a_small_model(tmp_path, monkeypatch):
    """Four layers, a context of 384 characters, no chat template; heads for it in the package."""
    short = {name: replace(one, texts=one.texts[:1]) for name, one in WORKLOADS.items()}
    monkeypatch.setattr(bench_module, "WORKLOADS", short)
    arguments = ("bench", "--model", "shakespeare-gpt", "--quick", "--tokens", "12", "--repeats", "1", "--out", str(tmp_path))
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "no chat template; left out: chat, summary" in result.stderr
    stored = json.loads((tmp_path / "bench_quick.json").read_text())
    assert {part["workload"] for part in stored["parts"]} == {"code", "shakespeare"}
    random = {name: told["random"] for name, told in stored["about"]["methods"].items()}
    assert not any(random[name] for name in ("distilled", "medusa", "draft-model"))
    result = CliRunner().invoke(cli, [*arguments, "--workload", "chat"])
    assert "no chat template" in result.stderr
    assert result.exit_code == 2, "who asks for messages must be told that there can be none"


def test_a_context_too_short_for_the_usual_one_is_measured_nearer(target):
    assert list(forward_costs(random_model(replace(target.config, max_length=20), 0), (1, 8, 64), repeats=1)) == [1, 8]


def test_raw_text_is_cut_to_its_end(target):
    code = WORKLOADS["code"]
    whole, cut = (code.prompts(target.tokenizer, longest) for longest in (None, 9))
    assert cut == [ids[-9:] for ids in whole]


def test_a_file_is_no_folder_of_heads(run, tmp_path):
    (tmp_path / "medusa.safetensors").touch()
    for wrong in ("medusa.safetensors", "absent"):
        result, _ = run("--quick", "--weights", tmp_path / wrong)
        assert isinstance(result.exception, ValueError), "random heads in their place would be measured without a word"
        assert f"--weights takes a folder of trained heads, and {tmp_path / wrong} is none" in str(result.exception)


def test_names_as_in_training(run):
    result, stored = run("--quick", "--tokens", 4, "--repeats", 1, "--workload", "code", "--temperature", 0, "--methods", "eagle")
    assert result.exit_code == 0, result.output
    assert list(stored["parts"][0]["rows"]) == [PLAIN, "eagle-3"]


def a_row(ratios, tau, **more):
    usual = {
        "alphas": [0.5, 1.0], "trials": [4, 2], "tokens": 9, "forwards": 4, "rates": [20.0, 30.0, 25.0], "ratios": ratios,
        "whole": [1.1, 1.2, 1.3], "parted": 1, "predicted": 1.75, "random": False, "peer": False,
        "cost": {"draft": 0.125, "nodes": 3.5, "verify": 1.25},
    }  # fmt: skip
    return usual | {"tau": tau} | more


def made_up():
    """Two workloads; a method and a peer."""
    about = {
        "model": "m", "dtype": "bfloat16", "activations": "float32", "machine": "x", "threads": 2, "torch": "2", "quick": False,
        "prompts": 6, "repeats": 3, "tokens": 128, "notes": ["llama.cpp is not here."],
        "methods": {"slow": {"weights": {"slow": "digest"}}, "fast": {"weights": {}}},
    }  # fmt: skip
    plain = a_row([1, 1, 1], 1.0, alphas=[], predicted=None, cost=None)
    parts = [
        {"workload": name, "temperature": 0, "limits": None, "rows": {
            PLAIN: plain,
            "slow": a_row([0.5 * f, 0.6 * f, 0.7 * f], 1.5),
            "fast": a_row([2.0 * f, 2.5 * f, 3.0 * f], 2.25, random=True),
            "theirs": a_row([9, 9, 9], 1.0, peer=True, predicted=None, cost=None, parted=None),
        }}
        for name, f in (("code", 1), ("chat", 0.4))
    ]  # fmt: skip
    return {"about": about, "verify": {"1": {"seconds": 0.02, "products": 0.015}, "8": {"seconds": 0.03, "products": 0.02}}, "parts": parts}


def test_tables_hold_the_numbers_of_the_json():
    results = made_up()
    header, rows = overview(results, 0)
    assert header == ["method", "code", "chat", "geometric mean"]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["slow"] == ["0.60× (0.55–0.65), τ 1.50", "0.24× (0.22–0.26), τ 1.50", f"{geometric_mean([0.6, 0.24]):.2f}×"]
    assert "fast (random heads)" in by_name
    assert by_name["best of ours"] == ["2.50× fast", "1.00× fast", f"{geometric_mean([2.5, 1.0]):.2f}×"], "peers are not ours"
    header, rows = details(results, 0)
    slow = dict(zip(header, rows[1]))
    assert slow == {
        "workload": "code", "method": "slow", "τ": "1.50", "α by depth": ".50 1.0", "tokens/s": "25.0", "speedup": "0.60×",
        "predicted": "1.75×", "whole texts": "1.20×", "c": "0.125", "nodes": "3.5", "r": "1.25", "texts that part": "1 of 6",
    }  # fmt: skip
    text = markdown(results)
    assert "| 8 | 30.0 | 1.50 | 67% |" in text
    assert "llama.cpp is not here." in text
    assert "the median of 3 repeats" in text


def test_the_headline_takes_the_fastest_method_and_the_fastest_trained_one():
    header, rows = headline(made_up())
    assert header == ["", "code", "chat", "geometric mean"]
    assert rows == [
        ["T = 0: plain decoding", "25.0 tokens/s", "25.0 tokens/s", "25.0 tokens/s"],
        ["T = 0: best of ours", "2.50× fast", "1.00× fast", "1.58×"],
        ["T = 0: best trained method: slow", "0.60×, τ 1.50", "0.24×, τ 1.50", "0.38×"],
        ["T = 0: theirs", "9.00×", "9.00×", "9.00×"],
    ]
    assert losers(made_up(), 0) == "Slower than plain decoding: slow everywhere."


def test_the_figure_shows_medians_and_quartiles():
    bars, points = bench_module.figure(made_up()).axes
    assert [bar.get_height() for bar in bars.patches] == pytest.approx([0.6, 0.24, 2.5, 1.0, 9, 9])
    whiskers = [line.get_segments()[0][:, 1].tolist() for line in bars.collections][:2]
    assert whiskers == [pytest.approx([0.55, 0.65]), pytest.approx([2.25, 2.75])], "whiskers go from quartile to quartile"
    assert [line.get_label() for line in points.lines[:-1]] == ["slow", "fast (random heads)"], "nothing is predicted for peers"
    assert [tick.get_text() for tick in bars.get_xticklabels()] == ["code", "chat"]


def test_markdown_and_figure_of_a_run_are_those_of_its_json(run, tmp_path):
    _, stored = run(*ONE)
    text = (tmp_path / "bench_quick.md").read_text()
    for part in stored["parts"]:
        row = part["rows"]["prompt-lookup"]
        low, middle, high = quartiles(row["ratios"])
        assert f"{middle:.2f}× ({low:.2f}–{high:.2f}), τ {row['tau']:.2f}" in text
    figure = bench_module.figure(stored)
    bars, points = figure.axes[0], figure.axes[1]
    heights = [bar.get_height() for bar in bars.patches]
    assert heights == [quartiles(part["rows"]["prompt-lookup"]["ratios"])[1] for part in stored["parts"][:2]]
    assert list(points.lines[0].get_xdata()) == [part["rows"]["prompt-lookup"]["predicted"] for part in stored["parts"][:2]]
    assert list(points.lines[0].get_ydata()) == heights


def test_trained_weights_are_taken_where_they_lie(target, tmp_path):
    assert has_random_heads("eagle-2+prompt-lookup", tmp_path)
    assert not has_random_heads("prompt-lookup", tmp_path)
    EagleHead.random(target, version=1, seed=3).save(tmp_path / "eagle-1.safetensors")
    MedusaHeads.random(target, heads=4).save(tmp_path / "medusa.safetensors")
    assert not has_random_heads("eagle-1+medusa", tmp_path)
    assert not has_random_heads("eagle-2", tmp_path), "EAGLE-2 is the head of EAGLE-1 with another tree"
    assert has_random_heads("eagle-3", tmp_path)
    stored, other = (drafter_of("eagle-2", target, True, folder).head.state_dict() for folder in (tmp_path, tmp_path / "none"))
    expected = EagleHead.random(target, version=1, seed=3).state_dict()
    assert all(torch.equal(stored[key], expected[key]) for key in expected)
    assert not all(torch.equal(other[key], expected[key]) for key in expected)
    assert drafter_of("medusa", target, True, tmp_path).heads.config.heads == 4


def test_settings_are_those_of_the_table(target, tmp_path):
    assert set(TUNED) == set(METHODS), "every method has its settings in one table"
    assert DEFAULT.split(",") == [*METHODS, *JOINED]
    assert settings_of("prompt-lookup", True) == [TUNED["prompt-lookup"][0]]
    assert settings_of("lookahead+medusa", False) == [TUNED["lookahead"][1], TUNED["medusa"][1]]
    joined = drafter_of("eagle-3+prompt-lookup", target, False, tmp_path)
    (_, eagle), (_, lookup) = JOINED["eagle-3+prompt-lookup"]
    assert isinstance(joined, Combine)
    assert isinstance(joined.first, Eagle)
    assert (joined.first.budget, joined.second.k) == (eagle.budget, lookup.k)


def compiles(source):
    try:
        compile(source, "prompt", "exec")
    except SyntaxError:
        return False
    return True


def test_workloads():
    assert list(WORKLOADS) == ["code", "chat", "summary", "shakespeare"]
    assert all(len(set(workload.texts)) == 6 for workload in WORKLOADS.values())
    assert all(120 <= len(passage.split()) <= 250 for passage in PASSAGES)
    for file in FILES:
        whole = [file + indent * "    " + "pass\n" for indent in (1, 2, 3)]
        assert any(map(compiles, whole)), "a code prompt must be the beginning of a Python file"
        assert re.search(r"^(import|from) ", file, re.MULTILINE)


def test_chat_prompts_go_through_the_template_and_raw_ones_do_not(target):
    decoded = [target.tokenizer.decode(WORKLOADS[name].prompts(target.tokenizer)[0]) for name in ("summary", "code")]
    assert decoded[0].startswith("<user>Summarize the following text")
    assert decoded[0].endswith("<answer>")
    assert decoded[1] == FILES[0]


def peers_module():
    spec = importlib.util.spec_from_file_location("peers", bench_module.PEERS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_peers_take_turns_and_missing_ones_are_told(run, target, monkeypatch):
    module = peers_module()
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None if name == "xllamacpp" else object())
    monkeypatch.setattr(module, "version", lambda name: "9")
    rounds = [Round([5], 0, 0, "plain", 1.0), Round([6, 7], 1, 0, "plain", 0.5)]
    monkeypatch.setattr(module, "with_transformers", lambda target, tokens: {"theirs": lambda ids, seed: rounds})
    monkeypatch.setattr(bench_module, "_load_peers", lambda: module)
    result, stored = run(*ONE, "--peers")
    assert result.exit_code == 0, result.output
    row = stored["parts"][0]["rows"]["theirs"]
    assert (row["peer"], row["tau"], row["rates"], row["parted"], row["predicted"]) == (True, 1.5, [4.0], 1, None)
    assert "theirs" not in stored["parts"][2]["rows"], "peers decode greedily, so they have rows at temperature 0 only"
    assert stored["about"]["notes"] == [
        "transformers is version 9.",
        "The rows of xllamacpp are left out: it is not installed.",
    ]


def test_a_streamer_makes_a_round_of_everything_that_comes_at_once():
    module = peers_module()
    stamps = module.Stamps()
    for ids in ([1, 2, 3], [4], [5, 6, 7]):
        stamps.put(torch.tensor([ids]))
    assert [round.tokens for round in stamps.rounds] == [[4], [5, 6, 7]]
    assert all(round.seconds > 0 for round in stamps.rounds)
    assert [round.tokens for round in module.cut(stamps.rounds, 3)] == [[4], [5, 6]]


def test_transformers_rows_are_its_own_greedy_text(target, monkeypatch):
    """A tiny Llama in place of the real model: alone, with its first layers as the assistant, and with prompt lookup."""
    transformers = pytest.importorskip("transformers")
    module = peers_module()
    torch.manual_seed(0)
    sizes = {"vocab_size": 257, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 4, "num_hidden_layers": 12}
    config = transformers.LlamaConfig(**sizes, initializer_range=0.5, bos_token_id=None, eos_token_id=None)
    model = transformers.LlamaForCausalLM(config).eval()
    monkeypatch.setattr(module, "_faster_dtype", lambda: (model, "float32"))
    runners, prompt = module.with_transformers(target, 20), [1, 2, 3, 1, 2]
    text = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0)
    expected = text[0, len(prompt) :].tolist()
    assert list(runners) == ["transformers, float32", "transformers, assistant", "transformers, prompt lookup"]
    for name, runner in runners.items():
        rounds = runner(prompt, 0)
        assert [token for round in rounds for token in round.tokens] == expected, name
        most = {"float32": 1, "assistant": TUNED["draft-model"][0].k + 1, "prompt lookup": TUNED["prompt-lookup"][0].k + 1}
        longest = max(len(round.tokens) for round in rounds)
        assert longest <= most[name.removeprefix("transformers, ")], "drafts must be as long as in our own rows"
