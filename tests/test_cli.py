from dataclasses import fields

import pytest
from typer.testing import CliRunner

from specdec import commands
from specdec.cli import app
from specdec.methods import HEADS, METHODS, READS, Settings, weights_of
from specdec.models import load_model
from specdec.models.checkpoints import SHIPPED


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(a) for a in arguments], **options)


@pytest.mark.model
@pytest.mark.parametrize("drafter", ["prompt-lookup", "draft-model"])
def test_generate_compares_with_plain_decoding(drafter):
    layers = ("--layers", 3) if drafter == "draft-model" else ()
    result = run("generate", "one two three one two three one two", "--drafter", drafter, "--k", 3, *layers, "--compare",
                 "--max-new-tokens", 12, "--dtype", "float32")  # fmt: skip
    assert result.exit_code == 0, result.output
    for expected in (drafter, "plain decoding", "tokens/s", "accepted", "recovered", "bonus", "The two texts are equal"):
        assert expected in result.output


@pytest.mark.model
@pytest.mark.parametrize("drafter", [*METHODS, "eagle-2+prompt-lookup"])
def test_every_method_compares_with_plain_decoding(drafter, smollm2, monkeypatch):
    """In forwards of one width the two texts are equal in the default precision, whatever the heads guess."""
    monkeypatch.setattr(commands, "load_model", lambda *_: smollm2)
    read = {name for part in drafter.split("+") for name in READS[part]}
    told = [word for name, value in (("k", 3), ("layers", 2)) if name in read for word in (f"--{name}", value)]
    result = run("generate", "one two three one two three one two", "--drafter", drafter, "--compare", "--max-new-tokens", 6,
                 "--width", 12, *told)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "The two texts are equal" in result.output
    untrained = any(part in HEADS and not weights_of(part) for part in drafter.split("+"))
    assert ("The heads are random" in result.output) == untrained


@pytest.mark.model
@pytest.mark.parametrize(("arguments", "message"), [
    (("--drafter", "oracle"), "unknown drafter 'oracle'; choose from none, draft-model"),
    (("--drafter", "eagle-3", "--budget", 0), "budget must be a whole number >= 1, got 0"),
    (("--drafter", "eagle-2", "--weights", "absent.safetensors"), "absent.safetensors does not exist"),
    (("--drafter", "medusa", "--tree", "2;1"), "--tree takes whole numbers with commas between them, as in 3,2,1; got '2;1'"),
    (("--drafter", "prompt-lookup", "--width", 4), "width = 4 takes one prompt and a drafter of at most 3 nodes"),
    (("--drafter", "lookahead", "--pool", -1), "pool must be a whole number >= 0, got -1"),
])  # fmt: skip
def test_a_method_that_cannot_be_built_is_named(arguments, message, smollm2, monkeypatch):
    monkeypatch.setattr(commands, "load_model", lambda *_: smollm2)
    result = run("generate", "x", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


GPT = ("--model", "shakespeare-gpt", "--max-new-tokens", 6)


@pytest.mark.parametrize("method", METHODS)
def test_every_option_that_a_method_does_not_read_is_refused(method, tmp_path):
    """And none that it reads: what `READS` says is what the method looks at."""
    usual = Settings(tree=(2, 1), weights=tmp_path)
    given = {field.name: str(getattr(usual, field.name)) for field in fields(Settings)} | {"tree": "2,1", "layers": "1"}
    for name, value in given.items():
        result = run("generate", "x", *GPT, "--drafter", method, f"--{name}", value)
        assert (f"{method} does not read --{name}; it reads --" in result.stderr) == (name not in READS[method]), name
        if name in READS[method] and name != "weights":
            assert result.exit_code == 0, result.output


@pytest.mark.parametrize("method", METHODS)
def test_a_method_reads_what_it_says(method, monkeypatch):
    looked_at = set()

    class Watched(Settings):
        def __getattribute__(self, name):
            looked_at.add(name)
            return super().__getattribute__(name)

    settings = Watched()
    looked_at.clear()  # it looks at itself
    METHODS[method](load_model("shakespeare-gpt"), settings)
    assert looked_at & {field.name for field in fields(Settings)} == set(READS[method])


@pytest.mark.parametrize(("arguments", "message"), [
    (("--drafter", "none", "--k", 3), "none does not read --k"),
    (("--drafter", "medusa+prompt-lookup", "--beam", 2), "medusa+prompt-lookup does not read --beam; it reads --tree, --weights, --ngram"),
    (("--drafter", "eagle", "--k", 3), "eagle-3 does not read --k"),
    (("--drafter", "eagle-2", "--beam", 0), "beam must be >= 1, got 0"),
    (("--drafter", "medusa", "--weights", "."), ". is a folder; trained heads are one .safetensors file"),
    (("--drafter", "draft-model", "--layers", 5), "layers must lie in [1, 4], got 5"),
])  # fmt: skip
def test_options_are_named_as_they_were_given(arguments, message):
    result = run("generate", "x", *GPT, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


@pytest.mark.parametrize(("alias", "method"), [
    ("eagle", "eagle-3"), ("distill", "distilled"), ("eagle+prompt-lookup", "eagle-3+prompt-lookup"),
])  # fmt: skip
def test_a_drafter_is_called_as_its_training_is(alias, method):
    result = run("generate", "To be, or not", *GPT, "--drafter", alias)
    assert result.exit_code == 0, result.output
    assert f" {method} " in result.stdout


@pytest.mark.parametrize("model", ["shakespeare-gpt", str(SHIPPED / "shakespeare-gpt")])
@pytest.mark.parametrize("method", ["medusa", "distilled", "eagle-3"])
def test_the_heads_of_the_small_gpt_are_found(model, method):
    result = run("generate", "First Citizen:", *GPT, "--model", model, "--drafter", method, "--max-new-tokens", 40)
    assert result.exit_code == 0, result.output
    assert ("The heads are random" in result.output) == (method == "eagle-3"), "the package has no EAGLE for it"


@pytest.mark.model
def test_generate_reads_standard_input_and_samples():
    options = ("--temperature", 1, "--top-p", 0.9, "--seed", 3, "--max-new-tokens", 5, "--chat", "--drafter", "none")
    first, second = (run("generate", "-", *options, input="Say hello.") for _ in range(2))
    assert first.exit_code == 0
    assert first.output.splitlines()[:3] == second.output.splitlines()[:3]


@pytest.mark.model
def test_fetch_says_where_the_model_lies():
    result = run("fetch")
    assert result.exit_code == 0
    assert ".gguf" in result.output


@pytest.mark.parametrize(("arguments", "message"), [
    (("generate", "x", "--model", "nope"),
     "expected 'smollm2-135m', 'shakespeare-gpt', a .gguf file or a Hugging Face directory, got 'nope'"),
    (("generate", "x", "--temperature", -1), "temperature must be a finite number >= 0, got -1"),
])  # fmt: skip
def test_wrong_values_are_one_line_and_exit_status_2(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


@pytest.mark.model
def test_an_empty_prompt_is_named():
    result = run("generate", "")
    assert result.exit_code == 2
    assert "at least one token" in result.stderr
