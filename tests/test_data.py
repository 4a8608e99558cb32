"""Training data: what a harvest writes, that it can be stopped at any moment, and how its texts become batches."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_harvest import SMALL, target_of_bytes, use_small_sources

from specdec.distributions import Sampling
from specdec.models import load_model
from specdec.models.tokenizer import Tokenizer
from specdec.models.transformer import Transformer
from specdec.training import corpora
from specdec.training import harvest as harvests
from specdec.training.config import KINDS, Harvest
from specdec.training.corpora import Corpus, is_held_out, whole_sentences
from specdec.training.harvest import FORMAT, harvest
from specdec.training.prompts import continue_all, cut_loop, find_loop
from specdec.training.texts import VALIDATION, Texts, read_shard


@pytest.fixture(scope="module")
def target() -> Transformer:
    """A tiny random model that reads and writes bytes."""
    return target_of_bytes(0)


@pytest.fixture(autouse=True)
def _small_sources(request, monkeypatch):
    if "real_sources" in request.fixturenames:
        return
    use_small_sources(monkeypatch)


@pytest.fixture
def real_sources():
    """Asked for by tests that read the real ones."""


def _bytes(directory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def whole(target, tmp_path):
    """A harvest of four shards."""
    out = tmp_path / "whole"
    harvest(target, out, 120, seed=3, config=SMALL)
    assert len(list(out.glob("shard-*"))) >= 3, "the tests below want several shards; raise the tokens"
    return out


def test_a_harvest_is_killed_and_goes_on_to_the_same_bytes(target, whole, tmp_path, monkeypatch):
    out, written = tmp_path / "killed", []
    save = harvests.save_file

    def killed(arrays, path, metadata):
        written.append(path)
        if len(written) == 2:
            path.write_bytes(b"half a shard")
            raise KeyboardInterrupt
        save(arrays, path, metadata)

    monkeypatch.setattr(harvests, "save_file", killed)
    with pytest.raises(KeyboardInterrupt):
        harvest(target, out, 120, seed=3, config=SMALL)
    assert not (out / "shard-00001.safetensors").exists(), "a shard may appear under its name only when it is whole"
    harvest(target, out, 120, seed=3, config=SMALL)
    assert _bytes(out) == _bytes(whole), "a resumed harvest must end at the bytes of one that was never stopped"
    assert len([path for path in written if "00000" in path.name]) == 1, "a shard that is there must not be made again"


def test_a_missing_shard_is_made_again_whatever_stands_behind_it(target, whole):
    before = _bytes(whole)
    (whole / "shard-00001.safetensors").unlink()
    harvest(target, whole, 120, seed=3, config=SMALL)
    assert _bytes(whole) == before, "shard i may depend on nothing but target, seed, configuration and i"


def test_more_tokens_only_add_shards(target, whole):
    before = _bytes(whole)
    harvest(target, whole, 200, seed=3, config=SMALL)
    after = _bytes(whole)
    assert len(after) > len(before)
    assert {name: after[name] for name in before} == before, (
        "a longer harvest must leave the shards of a shorter one as they are"
    )


def test_a_harvest_without_a_shard_takes_no_directory(target, tmp_path):
    with pytest.raises(ValueError, match="context"):
        harvest(target, tmp_path, 120, config=replace(SMALL, new_tokens=10**6))
    harvest(target, tmp_path, 1, config=SMALL)


def test_a_target_without_a_chat_template_continues_texts(tmp_path):
    gpt = load_model("shakespeare-gpt")
    config = Harvest.suited_to(gpt)
    assert (config.chat, config.summary, config.code + config.shakespeare) == (0, 0, pytest.approx(1))
    assert config.prefix[1] + config.new_tokens <= gpt.config.max_length
    harvest(gpt, tmp_path, 1, config=replace(config, batch=4, new_tokens=4))
    assert {KINDS[kind] for kind in read_shard(tmp_path / "shard-00000.safetensors").kinds} == {"code", "shakespeare"}
    with pytest.raises(ValueError, match="no chat template"):
        harvest(gpt, tmp_path / "chat", 1)


def test_a_target_that_can_chat_is_asked_as_ever(target):
    target = SimpleNamespace(config=replace(target.config, max_length=8192), tokenizer=target.tokenizer)
    assert Harvest.suited_to(target) == Harvest()


@pytest.mark.parametrize("change", ["seed", "config", "target", "sources"])
def test_a_directory_of_another_harvest_is_refused(target, whole, change, monkeypatch):
    arguments = {"target": target, "seed": 3, "config": SMALL}
    arguments |= {"seed": {"seed": 4}, "config": {"config": Harvest(batch=9)}, "target": {"target": target_of_bytes(1)}}.get(change, {})
    if change == "sources":
        monkeypatch.setattr(corpora, "documents", lambda source, split: {"other": "def g():\n    pass\n" * 200})
    before = _bytes(whole)
    with pytest.raises(ValueError, match=f"holds another harvest, with {change}"):
        harvest(out=whole, tokens=10**6, **arguments)
    assert _bytes(whole) == before, "a refused harvest must not write"


def test_shards_say_what_they_are(target, whole):
    for number, path in enumerate(sorted(whole.glob("shard-*"))):
        shard = read_shard(path)
        about = {"format": FORMAT, "seed": 3, "shard": number, "temperature": (0.0, 1.0)[number % 2]}
        assert about.items() <= shard.about.items()
        assert len(shard.texts) == len(shard.prompt_lengths) == len(shard.kinds) == len(shard.dropped) == SMALL.batch
        assert all(text.dtype == np.uint16 for text in shard.texts), "a vocabulary of 258 fits into 16 bits"
        assert all(1 <= g <= SMALL.new_tokens for g in shard.generated)
        for text, prompt, generated in zip(shard.texts, shard.prompt_lengths, shard.generated, strict=True):
            stopped = text[-1] == 257 and generated >= 1
            assert stopped or generated == SMALL.new_tokens, "a text ends at a stop token or the budget"
            assert 257 not in text[prompt:-1], "nothing may follow a stop token"
    assert json.loads((whole / "harvest.json").read_text())["config"]["new_tokens"] == SMALL.new_tokens


def test_prompts_are_of_their_kind(target, whole):
    tokenizer, kinds = target.tokenizer, set()
    for path in whole.glob("shard-*"):
        shard = read_shard(path)
        for text, prompt, kind in zip(shard.texts, shard.prompt_lengths, shard.kinds, strict=True):
            kinds.add(KINDS[kind])
            given = tokenizer.fast.decode(text[:prompt].tolist(), skip_special_tokens=False)
            chat = given.startswith("<s>user:") and given.endswith("<e><s>assistant:")
            assert chat == (KINDS[kind] in ("chat", "summary")), f"a prompt of {KINDS[kind]} is {given!r}"
            assert chat or SMALL.prefix[0] <= prompt <= SMALL.prefix[1], "a prefix must have a length of the configured range"
    assert kinds == set(KINDS)


def test_greedy_shards_are_the_targets_choice(target, whole):
    """Against a forward without cache, batch or loop."""
    shard = read_shard(whole / "shard-00000.safetensors")
    for text, prompt in zip(shard.texts, shard.prompt_lengths, strict=True):
        ids = torch.from_numpy(text.astype(np.int64))
        with torch.inference_mode():
            logits = target(ids[None], target.new_cache(len(ids))).logits[0]
        assert logits[prompt - 1 : -1].argmax(-1).tolist() == ids[prompt:].tolist(), (
            "a greedy text must be the argmax at every position"
        )


def test_shares_of_kinds():
    kinds = Harvest().kinds()
    assert [kinds.count(kind) for kind in range(4)] == [22, 23, 9, 10], "0.35, 0.35, 0.15, 0.15 of 64"
    for shares in ([1, 0, 0, 0], [0, 0.5, 0.5, 0], [0.1, 0.2, 0.3, 0.4], [0, 0, 0, 1]):
        kinds = Harvest(*shares, batch=50).kinds()
        assert [kinds.count(kind) for kind in range(4)] == [round(50 * share) for share in shares], shares


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"code": 0.5}, "add up to 1"),
        ({"code": -0.1, "chat": 0.8}, ">= 0"),
        ({"batch": 0}, "batch must be a whole number"),
        ({"prefix": (9, 8)}, "prefix must be a range"),
        ({"temperatures": ()}, "at least one temperature"),
        ({"temperatures": (-1.0,)}, "temperature"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Harvest(**wrong)


def test_targets_that_cannot_chat_are_refused(tmp_path):
    model = target_of_bytes(0)
    model.tokenizer = Tokenizer(model.tokenizer.fast, (257,))
    with pytest.raises(ValueError, match="no chat template"):
        harvest(model, tmp_path / "a", 10, config=SMALL)
    model.tokenizer = None
    with pytest.raises(ValueError, match="needs a target with a tokenizer"):
        harvest(model, tmp_path / "b", 10, config=SMALL)
    assert not list(tmp_path.iterdir()), "a refused harvest must not leave a directory"


def test_rows_of_a_batch_draw_numbers_of_their_own(target):
    """Equal prompts would come out alike if rows shared their numbers."""
    one, other = continue_all(target, [[65, 66], [65, 66]], Sampling(1.0), 40, seed=5)
    assert one != other
    again = continue_all(target, [[70], [65, 66]], Sampling(1.0), 40, seed=5)[1]
    assert again == other, "a row's text must not depend on its neighbours"


# --- loops


def test_a_loop_is_found_where_it_begins():
    head = list(range(100, 120))
    assert find_loop(head + [1, 2, 3] * 30) == (20, 3)
    assert find_loop(head + [1, 2, 3] * 30 + [1]) == (20, 3), "it may end within a period"
    assert find_loop(head + [7] * 64) == (20, 1)
    assert find_loop(head + [7] * 63) is None, "63 tokens are not yet a loop"
    assert find_loop(head + [1, 2] * 40 + [5]) is None, "the end must be the loop"
    assert find_loop(list(range(64)) * 4) == (0, 64), "the longest period that is looked for, four times"
    assert find_loop(list(range(65)) * 4) is None
    assert find_loop(list(range(50)) * 3) is None, "three periods are not yet a loop"
    assert find_loop([]) is None


def test_a_loop_is_cut_to_three_periods():
    head = list(range(100, 120))
    assert cut_loop(head + [1, 2, 3] * 30 + [1]) == head + [1, 2, 3] * 3
    assert cut_loop([9] * 256) == [9] * 3
    assert cut_loop(head) == head
    assert find_loop(cut_loop(head + [1, 2, 3] * 30)) is None


def test_a_harvest_cuts_loops_and_says_how_much(target, tmp_path, monkeypatch):
    monkeypatch.setattr(harvests, "continue_all", lambda target, prompts, *_: [[65, 66] * 50 for _ in prompts])
    harvest(target, tmp_path, 1, config=SMALL)
    shard = read_shard(tmp_path / "shard-00000.safetensors")
    assert shard.generated == [6] * SMALL.batch
    assert shard.dropped == [94] * SMALL.batch


# --- texts and batches


def test_texts_are_split_without_overlap(target, whole):
    train, held_out = Texts(whole), None
    everything = [text.tobytes() for path in sorted(whole.glob("shard-*")) for text in read_shard(path).texts]
    names = [f"shard-{shard:05d} {row}" for shard in range(1000) for row in range(8)]
    share = sum(is_held_out(name, VALIDATION) for name in names) / len(names)
    assert share == pytest.approx(0.05, abs=0.01)
    chosen = [is_held_out(name, VALIDATION) for name in names[: len(everything)]]
    assert [text.tobytes() for text in train.texts] == [text for text, out in zip(everything, chosen) if not out]
    if any(chosen):
        held_out = Texts(whole, "held_out")
        assert [text.tobytes() for text in held_out.texts] == [text for text, out in zip(everything, chosen) if out]
    assert train.total_tokens + (held_out.total_tokens if held_out else 0) == sum(len(text) // 2 for text in everything)
    assert len(train.kinds) == len(train.prompt_lengths) == len(train.dropped) == len(train.temperatures) == len(train)


def test_texts_of_nothing_are_refused(tmp_path):
    with pytest.raises(ValueError, match="has no texts"):
        Texts(tmp_path)
    with pytest.raises(ValueError, match="'test'"):
        Texts(tmp_path, "test")


def _texts(lengths) -> Texts:
    """Texts whose every token is different, so that it can be followed."""
    texts, ends = object.__new__(Texts), np.cumsum(lengths)
    texts.texts = np.split(np.arange(1, ends[-1] + 1), ends[:-1])
    return texts


LENGTHS = [3, 17, 40, 8, 25, 100, 1, 12, 33, 64, 5] * 5  # 55 texts; 100 in pieces of at most 40: 34, 33, 33; 64: 32, 32


def test_an_epoch_has_every_token():
    texts = _texts(LENGTHS)
    pieces, steps = 55 + 5 * 2 + 5, 18  # 70 pieces, 4 rows each
    stream = texts.batches(4, 40, seed=1)
    for epoch in range(2):
        found, rows = [], 0
        for _, (tokens, mask) in zip(range(steps), stream):
            assert tokens.dtype == torch.int64
            assert mask.dtype == torch.bool
            assert len(tokens) == 4
            assert tokens.shape == mask.shape
            assert tokens.shape[1] <= 40
            assert mask.any(0).all(), "no column may be all padding"
            assert (mask.int().diff(dim=1) <= 0).all(), "padding stands at the end"
            assert (tokens[mask] > 0).all()
            assert (tokens[~mask] == 0).all()
            for row, kept in zip(tokens, mask):
                assert (row[kept].diff() == 1).all(), "a row is one text, in its order"
                found += row[kept].tolist()
            rows += len(tokens)
        assert rows == steps * 4 == pieces + 2, "the last batch of an epoch is filled with two of its pieces"
        assert set(found) == set(range(1, sum(LENGTHS) + 1)), f"epoch {epoch} must have every token"
        assert len(found) <= sum(LENGTHS) + 2 * 40


def test_rows_of_a_batch_are_of_similar_length():
    lengths = np.random.default_rng(0).integers(20, 400, size=2000).tolist()
    padded = total = 0
    for _, (tokens, mask) in zip(range(250), _texts(lengths).batches(8, 400, seed=1)):
        padded, total = padded + int((~mask).sum()), total + tokens.numel()
    assert padded / total < 0.05, (
        f"{padded / total:.1%} of the rows is padding; batches must be made of texts of similar length"
    )


@pytest.mark.parametrize("start", [0, 1, 17, 18, 19, 40])
def test_batches_go_on_at_any_step(start):
    texts, steps = _texts(LENGTHS), 50
    whole = [tokens.tolist() for _, (tokens, _) in zip(range(steps), texts.batches(4, 40, seed=1))]
    rest = [tokens.tolist() for _, (tokens, _) in zip(range(steps - start), texts.batches(4, 40, seed=1, start_step=start))]
    assert rest == whole[start:], "step s must be a function of the seed and s alone"


def test_batches_depend_on_seed_and_epoch():
    texts = _texts(LENGTHS)
    first = [tokens.tolist() for _, (tokens, _) in zip(range(36), texts.batches(4, 40, seed=1))]
    other = [tokens.tolist() for _, (tokens, _) in zip(range(36), texts.batches(4, 40, seed=2))]
    assert first != other
    assert first[:18] != first[18:], "a second epoch must come in another order"


def test_fewer_texts_than_a_batch():
    _, mask = next(_texts([3, 5]).batches(8, 40, seed=0))
    assert sorted(mask.sum(1).tolist()) == [3] * 4 + [5] * 4


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"length": 0}, {"start_step": -1}])
def test_batches_that_cannot_be_are_refused_when_they_are_asked_for(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} must be"):
        _texts([3]).batches(**({"batch_size": 2, "length": 4, "seed": 0} | wrong))


# --- sources


def test_passages_are_deterministic():
    corpus = Corpus("code", characters=50)
    first = [passage for _, passage in zip(range(20), corpus.passages(1))]
    assert first == [passage for _, passage in zip(range(20), corpus.passages(1))]
    assert first != [passage for _, passage in zip(range(20), corpus.passages(2))]
    assert all(len(passage) == 50 and passage.startswith("def f") for passage in first), "code begins at a definition"
    assert all(p[0] not in " \n" for _, p in zip(range(20), Corpus("shakespeare", characters=50).passages(1)))


def test_a_source_without_passages_is_refused():
    with pytest.raises(ValueError, match="no document of code"):
        Corpus("code", characters=10**6)


def test_whole_sentences():
    assert whole_sentences("One is here. Two is here. And thr") == "One is here. Two is here."
    assert whole_sentences('He said "no." And th') == 'He said "no."'
    assert whole_sentences("First line\n\nand th") == "First line"
    assert whole_sentences("Short. But then it goes on and on and on") == "Short. But then it goes on and on and on"
    assert whole_sentences("version 3.11 of it") == "version 3.11 of it"


def test_real_sources_of_python(real_sources):
    for source in ("code", "prose"):
        parts = [corpora.documents(source, split) for split in corpora.SPLITS]
        assert all(parts), source
        assert parts[0].keys().isdisjoint(parts[1]), "a document may be in one part only"
        assert len(parts[1]) / sum(map(len, parts)) == pytest.approx(0.1, abs=0.06)
        assert not any("test" in name.split("/") or "site-packages" in name for part in parts for name in part)
        for split in corpora.SPLITS:
            assert Corpus(source, split, 1000).starts
    train, held_out = (corpora.documents("prose", split) for split in corpora.SPLITS)
    paragraphs = {paragraph for text in held_out.values() for paragraph in text.split("\n\n")}
    shared = paragraphs & {paragraph for text in train.values() for paragraph in text.split("\n\n")}
    assert not shared, f"held-out documentation is quoted elsewhere: {list(shared)[:2]}"
    code = corpora.documents("code", "held_out")
    assert all(name in code for name in held_out if name.endswith(".py")), "a file held out as prose is held out as code too"


def test_unknown_sources_are_refused(real_sources):
    for arguments in (("music", "train"), ("code", "test")):
        with pytest.raises(ValueError, match="expected a source of"):
            corpora.documents(*arguments)


@pytest.mark.model
def test_real_plays(real_sources):
    train, held_out = (corpora.documents("shakespeare", split) for split in corpora.SPLITS)
    assert len(train) + len(held_out) == 37, "37 plays in modern spelling"
    assert train.keys().isdisjoint(held_out)
    assert held_out.keys() == {"as_you_like_it", "romeo_and_juliet"}
    for name, text in (train | held_out).items():
        assert text[:3].lower() == "act", f"{name} must begin with its first act"
        assert not any(word in text for word in ("Gutenberg", "THE END", "\r")), f"{name} has words that are not the play's"
