"""What is streamed is the text, and prompt + text is the text of all ids: with SentencePiece's decoders, and characters cut anywhere."""

import random

import pytest
from rich.console import Console
from tiny import tiny_model
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers

from specdec import commands
from specdec.continuation import CONTEXT, Continuation
from specdec.decoding import generate, stream
from specdec.distributions import Sampling
from specdec.drafters import DraftModel, PromptLookup
from specdec.models.tokenizer import Tokenizer
from specdec.showing import Painter

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["▁", "▁a", "▁the", "b", "é", "▁日", "。"]
CHARACTERS = "é日🎉 a\ufffd"


def special(fast):
    fast.add_special_tokens(["<s>", "</s>"])
    return Tokenizer(fast)


def llama_2():
    """As the tokenizer.json of Llama-2 and Mistral has it: pieces with ▁ for a space, bytes for what no piece covers."""
    fast = FastTokenizer(models.BPE({piece: i for i, piece in enumerate([*BYTES, *WORDS])}, [], byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    fast.decoder = decoders.Sequence(parts)
    return special(fast)


def metaspace():
    fast = FastTokenizer(models.BPE({piece: i for i, piece in enumerate(WORDS)}, []))
    fast.decoder = decoders.Metaspace()
    return special(fast)


def byte_level():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = FastTokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return special(fast)


KINDS = {"llama-2": llama_2, "metaspace": metaspace, "byte-level": byte_level}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return KINDS[request.param]()


def ids_of_bytes(tokenizer, data):
    """One id for each byte; None if the tokenizer has none."""
    if tokenizer.fast.token_to_id("<0x00>") is not None:
        return list(data)
    letters = byte_letters() if tokenizer.fast.token_to_id("é") is not None and tokenizer.fast.token_to_id("▁") is None else None
    return letters and [tokenizer.fast.token_to_id(letters[byte]) for byte in data]


def byte_letters():
    """GPT-2's letters for bytes, from its definition."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return {byte: chr(byte if byte in plain else next(other)) for byte in range(256)}


def random_ids(tokenizer, seed, n):
    """Words, special tokens, whole characters and pieces of them."""
    chance, ids = random.Random(seed), []
    while len(ids) < n:
        data = ids_of_bytes(tokenizer, chance.choice(CHARACTERS).encode())
        if data and chance.random() < 0.6:
            ids += data if chance.random() < 0.7 else chance.sample(data, chance.randint(1, len(data)))
        else:
            ids.append(chance.randrange(tokenizer.fast.get_vocab_size()))
    return ids[:n]


def streamed(tokenizer, prompt, pieces):
    """The text of all pieces, and that at no time more than one character was held back."""
    text, out, ids = Continuation(tokenizer.decode, prompt), "", list(prompt)
    before = tokenizer.decode(prompt)
    for piece in pieces:
        out += text.push(piece)
        ids += piece
        if not before.endswith("\ufffd"):
            whole = tokenizer.decode(ids)[len(before) :]
            assert whole.startswith(out), "what is out cannot be taken back"
            assert len(whole) - len(out) <= whole.endswith("\ufffd"), "only a broken last character may be held back"
    return out + text.finish()


@pytest.mark.parametrize("seed", range(40))
def test_prompt_and_text_are_the_text_of_all_ids(tokenizer, seed):
    ids, chance = random_ids(tokenizer, seed, 90), random.Random(seed)
    cut = seed % 5 if seed < 20 else chance.randrange(90)
    prompt, new = ids[:cut], ids[cut:]
    if tokenizer.decode(prompt).endswith("\ufffd"):
        return
    whole = tokenizer.decode(ids)
    rounds, rest = [], list(new)
    while rest:
        n = chance.randint(1, 5)
        rounds.append(rest[:n])
        rest = rest[n:]
    for pieces in (rounds, [[token] for token in new], [new]):
        assert tokenizer.decode(prompt) + streamed(tokenizer, prompt, pieces) == whole


@pytest.mark.parametrize("name", ["llama-2", "byte-level"])
@pytest.mark.parametrize("character", ["é", "日", "🎉"])
def test_a_character_that_is_cut_anywhere(name, character):
    """Between prompt and text it belongs to the text; at the end of the text all of it comes out, as U+FFFD."""
    tokenizer, data = KINDS[name](), character.encode()
    for cut in range(len(data) + 1):
        prompt, new = ids_of_bytes(tokenizer, b"a" + data[:cut]), ids_of_bytes(tokenizer, data[cut:] + b"b")
        expected = "b" if cut == len(data) else f"{character}b"
        assert streamed(tokenizer, prompt, [[token] for token in new]) == expected
        assert streamed(tokenizer, prompt, [new]) == expected
        broken = "\ufffd" if 0 < cut < len(data) else character if cut else ""
        head = ids_of_bytes(tokenizer, data[:cut])
        text = Continuation(tokenizer.decode, ids_of_bytes(tokenizer, b"a"))
        assert "".join(text.push([token]) for token in head) == (broken if broken != "\ufffd" else "")
        assert text.finish() == (broken if broken == "\ufffd" else "")
        assert text.finish() == "", "it comes out once"
        for after in (b"b", data, b"\xff"):  # what is broken and stays so is held back no longer than until it is known
            ids = [*head, *ids_of_bytes(tokenizer, after)]
            assert streamed(tokenizer, [], [[token] for token in ids]) == tokenizer.decode(ids)


@pytest.mark.parametrize("name", ["llama-2", "byte-level"])
def test_a_broken_character_breaks_no_other(name):
    """`ByteFallback` alone makes U+FFFD of every byte of a run that has a fault, so that what was printed would change."""
    tokenizer = KINDS[name]()
    for data in (b"\xc3\xa9\xc3", b"\xc3\xc3\xa9", b"\xf0\x9f\x8e", b"\xff\xfe", "é日\ufffd🎉".encode(), b"a\xe6\x97b"):
        assert tokenizer.decode(ids_of_bytes(tokenizer, data)) == data.decode(errors="replace")


def test_decode_without_faults_is_that_of_the_library(tokenizer):
    for seed in range(20):
        ids = random_ids(tokenizer, seed, 30)
        plain = tokenizer.fast.decode(ids, skip_special_tokens=True)
        assert "\ufffd" in plain or tokenizer.decode(ids) == plain


def test_a_token_costs_the_same_at_any_length(tokenizer):
    lengths = []

    def decode(ids):
        lengths.append(len(ids))
        return tokenizer.decode(ids)

    word = tokenizer.fast.token_to_id("▁the") or tokenizer.fast.token_to_id("b")
    text = Continuation(decode, [word] * 1000)
    assert "".join(text.push([word]) for _ in range(1000)) == tokenizer.decode([word] * 2000)[len(tokenizer.decode([word] * 1000)) :]
    assert max(lengths) <= 2 * CONTEXT


def test_tokens_that_say_nothing_are_no_context(tokenizer):
    """After many special tokens the next word is still not the first of its text."""
    word = tokenizer.fast.token_to_id("▁the") or tokenizer.fast.token_to_id("b")
    silent, whole = [tokenizer.fast.token_to_id("</s>")] * (3 * CONTEXT), tokenizer.decode([word, word, word])
    prompt, ids = [word, *silent], [word, *silent, word]
    assert tokenizer.decode([word]) + streamed(tokenizer, prompt, [[token] for token in ids[1:]]) == tokenizer.decode([word, word])
    assert tokenizer.decode([word]) + streamed(tokenizer, [word], [[token] for token in [word, *silent, word]]) == whole


# Through the loop.


@pytest.fixture(scope="module")
def target(tokenizer):
    model = tiny_model(1, tokenizer.fast.get_vocab_size(), scale=1.5)
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize("sampling", [Sampling(0), Sampling()], ids=["T=0", "T=1"])
@pytest.mark.parametrize("name", ["none", "itself", "prompt-lookup"])
def test_the_text_of_a_generation_goes_on_where_the_prompt_ends(target, name, sampling):
    drafter = {"none": None, "itself": DraftModel(target, 3), "prompt-lookup": PromptLookup(1, 4)}[name]
    prompts = [random_ids(target.tokenizer, seed, 4 + seed) for seed in range(12)]
    prompts = [prompt for prompt in prompts if not target.tokenizer.decode(prompt).endswith("\ufffd")][:4]
    decode, runs = target.tokenizer.decode, [generate(target, prompt, drafter, sampling, 24) for prompt in prompts]
    for prompt, run in zip(prompts, runs, strict=True):
        assert decode(prompt) + run.text == decode(prompt + run.tokens)
        assert "".join(round.text for round in stream(target, prompt, drafter, sampling, 24)) == run.text
    assert [run.text for run in generate(target, prompts, drafter, sampling, 24)] == [run.text for run in runs]
    stop = runs[0].tokens[9]  # the end of a text flushes it, whatever ends it
    ended = generate(target, prompts[0], drafter, sampling, 24, [stop])
    assert decode(prompts[0]) + ended.text == decode(prompts[0] + ended.tokens)


def test_without_a_tokenizer_there_is_no_text():
    run = generate(tiny_model(1, 11), [1, 2], max_new_tokens=3)
    assert run.text is None
    assert [round.text for round in run.rounds] == [None] * 3


@pytest.mark.parametrize("drafted", [False, True])
def test_the_command_prints_the_text(target, drafted, monkeypatch):
    prompt, printed = random_ids(target.tokenizer, 3, 8), []
    painter = Painter(Console(quiet=True))
    monkeypatch.setattr(painter, "print", lambda piece, kind: printed.append(piece))
    for seed in range(5):
        arguments = target, prompt, DraftModel(target, 3) if drafted else None, Sampling(2.0), 20
        _, ids = commands._print_stream(stream(*arguments, seed=seed), Continuation(target.tokenizer.decode, prompt), painter)
        run = generate(*arguments, seed=seed)
        assert ids == run.tokens
        assert "".join(printed) == run.text
        printed.clear()
