"""What heads and drafts learn from: the target's own text over many kinds of prompts, written as shards and read as batches.

`harvest` lets the target continue code and Shakespeare, answer messages that it wrote itself (Magpie, Xu et al. 2406.08464) and
summarise given passages; greedily in every second shard, at temperature 1 in the others. `Texts` reads what it wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import Tensor

from specdec.config import check_size
from specdec.decoding import Request, rounds
from specdec.distributions import Sampling
from specdec.models.tokenizer import Tokenizer
from specdec.models.transformer import Transformer
from specdec.progress import progress
from specdec.training.corpora import OPENINGS, SPLITS, WORDINGS, Corpus, digest, is_held_out, whole_sentences
from specdec.uniforms import Uniforms

FORMAT = 1  # raise it when other shards come of the same seed and configuration
KINDS = ("code", "chat", "summary", "shakespeare")
VALIDATION = 0.05  # of the texts


@dataclass(frozen=True)
class Harvest:
    """What a harvest is made of. Another one makes other shards.

    Each range is of tokens, both ends included, all lengths equally likely.

    Args:
        code, chat, summary, shakespeare: the shares of the kinds of prompts in every shard; they add up to 1.
        batch: texts of a shard; they are generated side by side.
        new_tokens: the most tokens of a continuation or an answer.
        temperatures: of the text; shard i has number i modulo their count.
        prefix: how much code or Shakespeare is given.
        passage: how much text is given to be summarised.
        message_tokens: the most tokens of a user's message.
        message_top_p: at which messages are drawn, at temperature 1. A small model's full distribution writes nonsense every other
            time; the messages are prompts, and nothing demands the target's exact law of them.
        split: the part of the sources that prompts are taken from.

    Raises:
        ValueError: naming what is wrong.
    """

    code: float = 0.35
    chat: float = 0.35
    summary: float = 0.15
    shakespeare: float = 0.15
    batch: int = 64
    new_tokens: int = 256
    temperatures: tuple[float, ...] = (0.0, 1.0)
    prefix: tuple[int, int] = (48, 192)
    passage: tuple[int, int] = (80, 220)
    message_tokens: int = 96
    message_top_p: float = 0.9
    split: str = "train"

    def __post_init__(self) -> None:
        for name in ("batch", "new_tokens", "message_tokens"):
            check_size(name, getattr(self, name))
        shares = [getattr(self, kind) for kind in KINDS]
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise ValueError(f"the shares of {', '.join(KINDS)} must be >= 0 and add up to 1, got {shares}")
        for name in ("prefix", "passage"):
            least, most = getattr(self, name)
            if not 1 <= least <= most:
                raise ValueError(f"{name} must be a range of lengths 1 <= least <= most, got {least} and {most}")
        if not self.temperatures:
            raise ValueError("a harvest needs at least one temperature, got none")
        for temperature in self.temperatures:
            Sampling(temperature)

    def kinds(self) -> list[int]:
        """The kind of each text of a shard, as an index into KINDS: every share to within one text."""
        ends = np.cumsum([getattr(self, kind) for kind in KINDS])
        return np.searchsorted(ends[:-1], (np.arange(self.batch) + 0.5) / self.batch, side="right").tolist()


def harvest(target: Transformer, out: str | Path, tokens: int, seed: int = 0, config: Harvest = Harvest()) -> None:
    """Writes shards into the directory `out` until the target has generated so many tokens in them, messages not counted.

    Shard i depends only on (target, seed, config, i) and on the Python whose library is read. Killed and started again, the harvest
    goes on with the first shard that is missing, and ends at the same bytes on the same machine with as many threads.

    shard-00017.safetensors holds `tokens` (all texts one behind the other; uint16 if the vocabulary allows it, else int32) and for
    each text `lengths`, `prompt_lengths`, `kinds` (indices into KINDS) and `dropped` (tokens of a loop that were cut off, `cut_loop`),
    int32. Its one entry of metadata, "about", is JSON: format, seed, shard, temperature, target.

    Raises:
        ValueError: if the target has no tokenizer or chat template, a text does not fit its context, or `out` was made with another
            target, seed, configuration or Python.
    """
    check_size("tokens", tokens)
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
    if target.tokenizer is None:
        raise ValueError("a harvest needs a target with a tokenizer")
    writer = Prompts(target, config)
    about = {"format": FORMAT, "seed": seed, "target": fingerprint(target), "config": asdict(config), "sources": writer.sources}
    out = Path(out)
    _claim(out, json.loads(json.dumps(about)))
    done = 0
    with progress() as bar:
        task = bar.add_task("harvesting", total=tokens)
        for shard in count():
            path = out / f"shard-{shard:05d}.safetensors"
            if not path.exists():
                _write(path, target, writer, seed, shard)
            done += sum(read_shard(path).generated)
            bar.update(task, completed=min(done, tokens), description=f"harvested {done:,} tokens, {shard + 1} shards")
            if done >= tokens:
                return


def _claim(out: Path, about: dict) -> None:
    """The directory belongs to one harvest: its description lies in harvest.json."""
    path = out / "harvest.json"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(about, indent=1) + "\n")
        part.replace(path)
    found = json.loads(path.read_text())
    other = [f"{key} {found.get(key)!r} instead of {value!r}" for key, value in about.items() if found.get(key) != value]
    if other:
        raise ValueError(f"{out} holds another harvest, with {'; '.join(other)}; choose another directory")


def fingerprint(target: Transformer) -> str:
    """Tells targets apart: SHA-256 of the configuration, the dtype and two of the tensors that every training moves."""
    found = hashlib.sha256(json.dumps(asdict(target.config)).encode())
    for tensor in (target.embedding.weight, target.norm.weight):
        found.update(str(tensor.dtype).encode() + tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _write(path: Path, target: Transformer, writer: Prompts, seed: int, shard: int) -> None:
    config = writer.config
    random = np.random.default_rng([seed, shard])
    temperature = config.temperatures[shard % len(config.temperatures)]
    prompts = writer.draw(random)
    answers = continue_all(target, prompts, Sampling(temperature), config.new_tokens, int(random.integers(2**63)))
    kept = [cut_loop(answer) for answer in answers]
    texts = [prompt + answer for prompt, answer in zip(prompts, kept, strict=True)]
    arrays = {
        "tokens": np.concatenate(texts).astype(np.uint16 if target.config.vocab_size <= 2**16 else np.int32),
        "lengths": np.array([len(text) for text in texts], np.int32),
        "prompt_lengths": np.array([len(prompt) for prompt in prompts], np.int32),
        "kinds": np.array(config.kinds(), np.int32),
        "dropped": np.array([len(answer) - len(rest) for answer, rest in zip(answers, kept, strict=True)], np.int32),
    }
    about = {"format": FORMAT, "seed": seed, "shard": shard, "temperature": temperature, "target": fingerprint(target)}
    part = path.with_suffix(".part")
    save_file(
        arrays, part, {"about": json.dumps(about)}
    )  # one entry: several are written in an order that changes from run to run
    part.replace(path)


@torch.inference_mode()
def continue_all(
    target: Transformer, prompts: list[list[int]], sampling: Sampling, new_tokens: int, seed: int
) -> list[list[int]]:
    """The new ids of every prompt, up to a stop token or the budget. Row b draws from request b of the seed.

    `generate` gives rows of different prompts the same numbers at the same position. Each text has the right law all the same; but of
    a thousand texts that learned which token follows at position 200, all that were generated together would have seen the same luck.
    """
    requests = [
        Request.begin(target, list(prompt), new_tokens, None, sampling, Uniforms(seed, row))
        for row, prompt in enumerate(prompts)
    ]
    cache = target.new_cache(max(request.longest for request in requests) - 1, len(requests))
    for _ in rounds(target, cache, requests, sampling, frozenset(target.tokenizer.stop_tokens)):
        pass
    return [request.committed[len(prompt) :] for request, prompt in zip(requests, prompts, strict=True)]


def find_loop(tokens: list[int], longest: int = 64, window: int = 64, periods: int = 4) -> tuple[int, int] | None:
    """Where the text began to say the same over and over: (start, period), or None if its end is no loop.

    It is one if its last `window` tokens, and at least its last `periods` periods, repeat with a period of at most `longest` tokens;
    of several periods the shortest counts. From `start` on every token equals the one a period before it, or is of the first period.
    """
    for period in range(1, longest + 1):
        same = len(tokens)
        while same > period and tokens[same - 1] == tokens[same - 1 - period]:
            same -= 1
        if len(tokens) - (same - period) >= max(window, periods * period) and same < len(tokens):
            return same - period, period
    return None


def cut_loop(tokens: list[int], keep: int = 3) -> list[int]:
    """The text without the end of its loop: `keep` periods stay, since the target does go on so, and a draft should know it.

    Small models loop in greedy text; uncut, what is learned best would be to repeat.
    """
    loop = find_loop(tokens)
    return tokens if loop is None else tokens[: loop[0] + keep * loop[1]]


class Prompts:
    """Prompts of every kind for a target.

    Raises:
        ValueError: if the tokenizer has no chat template, or a source has no passage.
    """

    def __init__(self, target: Transformer, config: Harvest):
        self.target, self.config, self.tokenizer = target, config, target.tokenizer
        self.corpora = {
            name: Corpus(name, config.split, n) for name, n in (("code", 2000), ("prose", 1000), ("shakespeare", 2000))
        }
        self.sources = {name: digest(name, config.split) for name in self.corpora}
        self.before_message = self.tokenizer.chat("⁂").partition("⁂")[0]

    def draw(self, random: np.random.Generator) -> list[list[int]]:
        """The prompts of a shard, in the order of `Harvest.kinds`."""
        kinds = [KINDS[kind] for kind in self.config.kinds()]
        messages = iter(self._messages(kinds.count("chat"), random))
        make = {
            "code": lambda: self._prefix("code", random),
            "chat": lambda: self._chat(next(messages)),
            "summary": lambda: self._chat(self._summary(random)),
            "shakespeare": lambda: self._prefix("shakespeare", random),
        }
        return [make[kind]() for kind in kinds]

    def _chat(self, message: str) -> list[int]:
        return self.tokenizer.encode(self.tokenizer.chat(message))

    def _prefix(self, source: str, random: np.random.Generator) -> list[int]:
        least, most = self.config.prefix
        return self.tokenizer.encode(self.corpora[source].passage(random))[: random.integers(least, most + 1)]

    def _summary(self, random: np.random.Generator) -> str:
        source = ("prose", "shakespeare")[random.integers(2)]
        least, most = self.config.passage
        ids = self.tokenizer.encode(self.corpora[source].passage(random))[: random.integers(least, most + 1)]
        return WORDINGS[random.integers(len(WORDINGS))].format(whole_sentences(self.tokenizer.decode(ids)))

    def _messages(self, n: int, random: np.random.Generator) -> list[str]:
        """What the target writes in the user's place. A quarter more than needed, so that those that came to an end can go first."""
        if not n:
            return []
        openings = [OPENINGS[i] for i in random.integers(len(OPENINGS), size=n + n // 4 + 1)]
        prompts = [self.tokenizer.encode(self.before_message + opening) for opening in openings]
        sampling = Sampling(1.0, top_p=self.config.message_top_p)
        found = continue_all(self.target, prompts, sampling, self.config.message_tokens, int(random.integers(2**63)))
        messages = [
            (opening + _message(self.tokenizer, ids), ids[-1] in self.tokenizer.stop_tokens)
            for opening, ids in zip(openings, found, strict=True)
        ]
        messages.sort(
            key=lambda message: not message[1] or len(message[0].split()) < 3
        )  # stable: the order of drawing otherwise
        return [message.strip() or "Hello" for message, _ in messages[:n]]


def _message(tokenizer: Tokenizer, ids: list[int]) -> str:
    text = tokenizer.decode(ids)
    return text if ids[-1] in tokenizer.stop_tokens else whole_sentences(text)


@dataclass(frozen=True)
class Shard:
    """A shard as it lies on disk. texts: arrays of ids; generated: how many of each text's tokens come behind its prompt."""

    texts: list[np.ndarray]
    prompt_lengths: list[int]
    kinds: list[int]
    dropped: list[int]
    about: dict

    @property
    def generated(self) -> list[int]:
        return [len(text) - prompt for text, prompt in zip(self.texts, self.prompt_lengths, strict=True)]


def read_shard(path: Path) -> Shard:
    with safe_open(path, framework="numpy") as file:
        tokens, lengths, prompts, kinds, dropped = map(
            file.get_tensor, ("tokens", "lengths", "prompt_lengths", "kinds", "dropped")
        )
        about = json.loads(file.metadata()["about"])
    return Shard(np.split(tokens, np.cumsum(lengths)[:-1]), prompts.tolist(), kinds.tolist(), dropped.tolist(), about)


class Texts:
    """The texts of a harvest.

    Args:
        directory: where `harvest` wrote; may still be growing, what is there now is read.
        split: "train" or "held_out": a twentieth of the texts, chosen by a hash of shard and row, so that a longer harvest moves none.

    Attributes:
        texts: arrays of ids, prompt and generated text.
        prompt_lengths, kinds (indices into KINDS), dropped, temperatures: one for each text.

    Raises:
        ValueError: on another split, or if there is no text.
    """

    def __init__(self, directory: str | Path, split: str = "train"):
        if split not in SPLITS:
            raise ValueError(f"expected a split of {SPLITS}, got {split!r}")
        self.texts: list[np.ndarray] = []
        self.prompt_lengths, self.kinds, self.dropped, self.temperatures = [], [], [], []
        for path in sorted(Path(directory).glob("shard-*.safetensors")):
            shard = read_shard(path)
            for row, text in enumerate(shard.texts):
                if is_held_out(f"{path.stem} {row}", VALIDATION) == (split == "held_out"):
                    self.texts.append(text)
                    self.prompt_lengths.append(shard.prompt_lengths[row])
                    self.kinds.append(shard.kinds[row])
                    self.dropped.append(shard.dropped[row])
                    self.temperatures.append(shard.about["temperature"])
        if not self.texts:
            raise ValueError(f"{directory} has no texts ({split}); `harvest` writes them there")

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def total_tokens(self) -> int:
        return sum(map(len, self.texts))

    def batches(self, batch_size: int, length: int, seed: int, start_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless: for each step tokens (B, T) int64 and mask (B, T) bool, True where a token is; T <= length.

        A row is one text, or one of the equal pieces of a text longer than `length`; every epoch has each of them once, and fills
        its last batch with its first ones. Rows of a batch are of similar length, padded at the end: in a causal model nothing looks
        at the padding, and no text at another. Leave what the mask leaves out out of the loss. (Packed rows would need a mask of
        their own in every attention, the drafts' too, to save the few percent of padding that remain.)

        Step s is a function of (seed, s): a training that stopped goes on at start_step without replay.

        Raises:
            ValueError: if a size is not a whole number >= 1, or start_step is negative.
        """
        check_size("batch_size", batch_size)
        check_size("length", length)
        if start_step < 0:
            raise ValueError(f"start_step must be >= 0, got {start_step}")
        return self._batches(batch_size, length, seed, start_step)

    def _batches(self, batch_size: int, length: int, seed: int, start_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        pieces = [piece for text in self.texts for piece in np.array_split(text, -(-len(text) // length))]
        steps = -(-len(pieces) // batch_size)
        epoch, order = None, []
        for step in count(start_step):
            if step // steps != epoch:
                epoch = step // steps
                order = _order([len(piece) for piece in pieces], batch_size, np.random.default_rng([seed, epoch]))
            yield _pad([pieces[i] for i in order[step % steps]])


def _order(lengths: list[int], batch_size: int, random: np.random.Generator) -> list[np.ndarray]:
    """The batches of an epoch, as indices: all shuffled, sorted by length within pools of 32 batches, and the batches shuffled."""
    shuffled = random.permutation(len(lengths))
    shuffled = np.resize(shuffled, -(-len(lengths) // batch_size) * batch_size)  # repeats the first ones at the end
    batches = []
    for at in range(0, len(shuffled), 32 * batch_size):
        pool = shuffled[at : at + 32 * batch_size]
        pool = pool[np.argsort(np.array(lengths)[pool], kind="stable")]
        batches += np.split(pool, len(pool) // batch_size)
    return [batches[i] for i in random.permutation(len(batches))]


def _pad(rows: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    for row, piece in enumerate(rows):
        tokens[row, : len(piece)] = torch.from_numpy(piece.astype(np.int64))
        mask[row, : len(piece)] = True
    return tokens, mask
