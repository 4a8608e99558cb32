"""What heads and drafts learn from: the target's own text over many kinds of prompts, written as shards.

`harvest` lets the target continue code and Shakespeare, answer messages that it wrote itself (Magpie, Xu et al. 2406.08464) and
summarise given passages; greedily in every second shard, at temperature 1 in the others. `specdec.training.texts` reads what it wrote.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from itertools import chain, count
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from specdec.config import check_size
from specdec.distributions import Sampling
from specdec.drafters.eagle_head import fused_layers
from specdec.models.transformer import Transformer
from specdec.progress import progress
from specdec.storing import save_file
from specdec.training.config import Harvest
from specdec.training.features import Recorder, features_path, fingerprint
from specdec.training.prompts import Prompts, continue_all, cut_loop
from specdec.training.texts import read_shard

FORMAT = 1  # raise it when other shards come of the same seed and configuration


def harvest(
    target: Transformer, out: str | Path, tokens: int, seed: int = 0, config: Harvest = Harvest(), features: bool = False
) -> None:
    """Writes shards into the directory `out` until the target has generated so many tokens in them, messages not counted.

    Shard i depends only on (target, seed, config, i) and on the Python whose library is read. Killed and started again, the harvest
    goes on with the first shard that is missing, and ends at the same bytes on the same machine with as many threads. Several
    processes may write into one directory: each takes a shard that no other has.

    Args:
        features: keep what the target computed on the way, too: features-00017.safetensors holds `hidden` (n, D) and `layers`
            (n, 3 D), bfloat16, the `Output`'s for all texts one behind the other, each without its last token, which the target never
            read; `layers` are those that EAGLE-3 reads, and "about" names them. A shard that is there already stays as it is.

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
            if not path.exists() and not _written(path, target, writer, seed, shard, features):
                continue  # another process is at it
            done += sum(read_shard(path).generated)
            bar.update(task, completed=min(done, tokens), description=f"harvested {done:,} tokens, {shard + 1} shards")
            if done >= tokens:
                return


def _claim(out: Path, about: dict) -> None:
    """The directory belongs to one harvest: its description lies in harvest.json. One that never came to a shard is forgotten."""
    path = out / "harvest.json"
    if not path.exists() or not any(out.glob("shard-*.safetensors")):
        out.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")  # several processes may begin at once
        part.write_text(json.dumps(about, indent=1) + "\n")
        part.replace(path)
    found = json.loads(path.read_text())
    other = [f"{key} {found.get(key)!r} instead of {value!r}" for key, value in about.items() if found.get(key) != value]
    if other:
        raise ValueError(f"{out} holds another harvest, with {'; '.join(other)}; choose another directory")


def _written(path: Path, target: Transformer, writer: Prompts, seed: int, shard: int, features: bool) -> bool:
    """Whether the shard could be written: not if another process holds its lock."""
    lock = FileLock(path.with_suffix(".lock"), timeout=0)
    try:
        with lock:
            if not path.exists():
                _write(path, target, writer, seed, shard, features)
            Path(lock.lock_file).unlink(missing_ok=True)
    except Timeout:
        return False
    return True


def _write(path: Path, target: Transformer, writer: Prompts, seed: int, shard: int, features: bool) -> None:
    config = writer.config
    random = np.random.default_rng([seed, shard])
    temperature = config.temperatures[shard % len(config.temperatures)]
    prompts = writer.draw(random)
    recorder = Recorder(fused_layers(target.config.layers)) if features else None
    answers = continue_all(target, prompts, Sampling(temperature), config.new_tokens, int(random.integers(2**63)), recorder)
    kept = [cut_loop(answer) for answer in answers]
    texts = [prompt + answer for prompt, answer in zip(prompts, kept, strict=True)]
    lengths = [len(text) for text in texts]
    arrays = {
        "tokens": torch.tensor(list(chain.from_iterable(texts))).to(torch.uint16 if target.config.vocab_size <= 2**16 else torch.int32),
        "lengths": torch.tensor(lengths, dtype=torch.int32),
        "prompt_lengths": torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int32),
        "kinds": torch.tensor(config.kinds(), dtype=torch.int32),
        "dropped": torch.tensor([len(all) - len(rest) for all, rest in zip(answers, kept, strict=True)], dtype=torch.int32),
    }
    about = {"format": FORMAT, "seed": seed, "shard": shard, "temperature": temperature, "target": fingerprint(target)}
    if recorder:
        _save(recorder.arrays([length - 1 for length in lengths]), features_path(path), about | {"layers": recorder.layers})
    else:
        features_path(path).unlink(missing_ok=True)  # of another attempt, killed before its shard was there
    _save(arrays, path, about)  # the last: where a shard lies, its features do


def _save(arrays: dict[str, Tensor], path: Path, about: dict) -> None:
    part = path.with_suffix(".part")
    save_file(arrays, part, {"about": json.dumps(about)})  # one entry: several are written in an order that changes from run to run
    part.replace(path)
