import pytest
from typer.testing import CliRunner

from specdec import commands
from specdec.cli import app
from specdec.methods import HEADS, METHODS, weights_of


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(a) for a in arguments], **options)


@pytest.mark.model
@pytest.mark.parametrize("drafter", ["prompt-lookup", "draft-model"])
def test_generate_compares_with_plain_decoding(drafter):
    result = run("generate", "one two three one two three one two", "--drafter", drafter, "--k", 3, "--layers", 3, "--compare",
                 "--max-new-tokens", 12, "--dtype", "float32")  # fmt: skip
    assert result.exit_code == 0, result.output
    for expected in (drafter, "plain decoding", "tokens/s", "accepted", "recovered", "bonus", "The two texts are equal"):
        assert expected in result.output


@pytest.mark.model
@pytest.mark.parametrize("drafter", [*METHODS, "eagle-2+prompt-lookup"])
def test_every_method_compares_with_plain_decoding(drafter, smollm2, monkeypatch):
    """In forwards of one width the two texts are equal in the default precision, whatever the heads guess."""
    monkeypatch.setattr(commands, "load_model", lambda *_: smollm2)
    result = run("generate", "one two three one two three one two", "--drafter", drafter, "--compare", "--max-new-tokens", 6,
                 "--width", 12, "--k", 3, "--layers", 2)  # fmt: skip
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
    (("generate", "x", "--temperature", -1), "temperature must be finite and >= 0, got -1"),
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
