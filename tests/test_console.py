"""What the commands print, and where: names and messages as they are, any terminal, one sentence for what the user can mend."""

import io
import os

import pytest
import torch
import typer
from typer.testing import CliRunner

from specdec import commands
from specdec.cli import app
from specdec.console import NEAREST, clear_errors, new_console, print_anything
from specdec.device import usable
from specdec.models import load_model
from specdec.progress import say

GPT = ("--model", "shakespeare-gpt")
SHORT = (*GPT, "--max-new-tokens", 12)


def run(*arguments, charset="utf-8", **options):
    return CliRunner(charset=charset).invoke(app, [str(a) for a in arguments], **options)


def refusal(result):
    """The one line of a command that refused its arguments."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    (line,) = result.stderr.strip().splitlines()
    return line


MARKUP = ["[/tmp]", "[bold]", "[/]", "[red]x[/red]", ":warning:", "[link=x]"]


@pytest.mark.parametrize("text", MARKUP)
def test_text_that_is_not_ours_is_printed_as_it_is(text, capsys):
    """As error, as word on standard error, as a line, in a table, in a heading."""
    with pytest.raises(typer.Exit), clear_errors():
        raise ValueError(f"{text} is wrong")
    say(f"{text} is odd")
    console = new_console()
    console.print(f"{text} is here")
    console.rule(text)
    out, err = capsys.readouterr()
    assert f"error: {text} is wrong\n" in err
    assert f"{text} is odd\n" in err
    assert f"{text} is here\n" in out
    assert f" {text} " in out.splitlines()[-1]


@pytest.mark.parametrize("text", MARKUP)
def test_a_path_with_brackets_is_named_whole(text):
    assert f"got '{text}'" in refusal(run("generate", "x", "--model", text))


@pytest.mark.parametrize("charset", ["ascii", "latin-1", "utf-8"])
def test_every_terminal_shows_text_and_table(charset):
    """The table has ×, – and ·; the first of them is in no ASCII, the second in no Latin-1."""
    result = run("generate", "Was it é, or α?", *SHORT, "--drafter", "prompt-lookup", "--compare", charset=charset)
    assert result.exit_code == 0, result.output
    for expected in ("tokens/s", "per forward", "speedup", "plain"):
        assert expected in result.output


def test_what_an_encoding_lacks_becomes_the_nearest_and_leaves_columns_in_line(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr("sys.stdout", stream)
    print_anything()
    print("1.5× – ok · α 語 \udcff")
    assert stream.buffer.getvalue() == b"1.5x - ok | a ? ?\n"
    assert all(len(sign) == 1 for sign in NEAREST.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_device_that_is_not_there_is_named(device):
    assert f"device '{device}' cannot be used here: " in refusal(run("generate", "x", *SHORT, "--device", device))
    with pytest.raises(ValueError, match=f"device '{device}' cannot be used here"):
        load_model("shakespeare-gpt", device=torch.device(device))


@pytest.mark.parametrize("device", ["gpu", "banana", ""])
@pytest.mark.parametrize("arguments", [
    ("generate", "x"), ("bench", "--quick"), ("harvest", "--to", "absent"),
    ("train", "gpt", "--data", "shakespeare", "--to", "absent"), ("train", "medusa", "--data", "absent", "--to", "absent"),
])  # fmt: skip
def test_a_device_that_is_unknown_is_named(device, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = f"device '{device}' is unknown; use cpu, or cuda where there is an NVIDIA GPU"
    assert expected in refusal(run(*arguments, *(() if "gpt" in arguments else GPT), "--device", device))
    assert list(tmp_path.iterdir()) == [], "before anything is written"


def test_a_device_that_computes_is_taken():
    assert usable("cpu") == usable(torch.device("cpu")) == torch.device("cpu")


def test_bytes_of_another_encoding_are_named():
    typed = os.fsdecode(b"caf\xe9")
    assert "the text is no valid UTF-8: its character 3 is '\\udce9'" in refusal(run("generate", typed, *SHORT))
    told = "standard input is no valid utf-8: byte 3 is 0xe9"
    assert told in refusal(run("generate", "-", *SHORT, input=b"caf\xe9"))
    with pytest.raises(ValueError, match="no valid UTF-8"):
        load_model("shakespeare-gpt").tokenizer.encode("half a character: \ud83d")


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "weights")

    monkeypatch.setattr(commands, "load_model", full)
    assert refusal(run("generate", "x")) == "error: weights: No space left on device"


def test_a_reader_that_is_gone_is_no_error():
    with pytest.raises(BrokenPipeError), clear_errors():
        raise BrokenPipeError
