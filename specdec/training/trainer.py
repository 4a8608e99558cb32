"""The one training loop: a loss curve, checkpoints, and a resumption that ends at the same weights.

The files of a run, in a directory of its own:

    config.json               TrainConfig
    log.jsonl                 the loss curve, a line a step: step, loss, tokens and seconds so far, and at intervals `validation`;
                              the line of step 0 has no loss, and is `about` head, data and machine
    checkpoint-00000200.pt    head, optimiser, step; the newest two
    weights.safetensors       the head in half precision, as it stood when the run ended or paused; or
    model/                    for a gpt: the same, a directory that `load_model` reads

Everything is a function of (configuration, step): batches, learning rate, initialisation. So no random state is stored.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch
from rich.progress import Progress
from torch import Tensor, nn

from specdec.device import usable
from specdec.models import load_model
from specdec.models.transformer import Transformer
from specdec.progress import progress, say
from specdec.training.config import TrainConfig
from specdec.training.corpora import SOURCES
from specdec.training.features import Recorded
from specdec.training.runs import MODEL, WEIGHTS, Batch, Run, Source, begin, validate
from specdec.training.small_gpt import Documents, new_gpt
from specdec.training.texts import Texts

CONFIG, LOG = "config.json", "log.jsonl"
KEPT = 2  # checkpoints


@dataclass
class Progressed:
    """How far a run has come. seconds: of all its invocations, validation included."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def train(
    config: TrainConfig,
    out: str | Path,
    resume: bool = True,
    device: torch.device | str = "cpu",
    stop_after: int | None = None,
    target: Transformer | None = None,
    train_texts: Source | None = None,
    held_texts: Source | None = None,
) -> Path:
    """Trains a head, or a small GPT, and writes it, with the run's other files, into the directory `out`.

    Killed at any moment and started again, it goes on from the newest whole checkpoint. On a GPU the head computes in bfloat16 where
    autocast does, over float32 weights.

    Args:
        resume: go on with the run that is there; False: begin anew, and forget it.
        stop_after: stop at this step, as if killed there; the schedule stays that of config.steps.
        target, train_texts, held_texts: in place of those that the configuration names. Of a gpt, the target is what is trained.

    Returns:
        The path of weights.safetensors, or of the directory model/.

    Raises:
        ValueError: if `out` holds a run of another configuration, no held-out text is long enough, the data are not those of the
            run that is there, their features are another target's, or the loss is no longer a finite number.
    """
    out = Path(out)
    if stop_after is not None and stop_after < 1:
        raise ValueError(f"stop_after must be >= 1, got {stop_after}")
    if resume:
        _refuse_another(out, config)
    target = _target(config, device) if target is None else target
    learn = _texts(config, "train", target) if train_texts is None else train_texts
    run = begin(config, target, learn)
    if config.features and isinstance(learn, Texts):
        learn = Recorded(learn, target, run.reads)
    held = held_out(run, _texts(config, "held_out", target) if held_texts is None else held_texts)
    optimizer = make_optimizer(run.head, config)
    _claim(out, config, resume)  # only now: a slip in what the run needs must neither take the directory nor cost the run in it
    at = _restore(out, run, optimizer)
    last = config.steps if stop_after is None else min(stop_after, config.steps)
    with _Log(out / LOG, at.step) as log, progress() as bar:
        _loop(run, optimizer, learn, held, at, last, out, log, bar)
    return run.save(out)


def _target(config: TrainConfig, device: torch.device | str) -> Transformer:
    return new_gpt(config).to(usable(device)) if config.method == "gpt" else load_model(config.model, device)


def _texts(config: TrainConfig, split: str, target: Transformer) -> Source:
    return Documents(config.data, split, target.tokenizer) if config.data in SOURCES else Texts(config.data, split)


def _loop(
    run: Run, optimizer: torch.optim.Optimizer, learn: Source, held: list[Batch], at: Progressed, last: int, out: Path, log: _Log,
    bar: Progress,
) -> None:  # fmt: skip
    config, task = run.config, bar.add_task(run.config.method, total=last, completed=at.step)
    began, before, fresh = time.perf_counter() - at.seconds, at.tokens, time.perf_counter()
    if at.step == 0:
        about = {
            "parameters": sum(p.numel() for p in run.head.parameters()), "texts": len(learn.texts),
            "text_tokens": sum(map(len, learn.texts)), "recorded": learn.recorded if isinstance(learn, Recorded) else 0,
            "device": run.target.device.type, "threads": torch.get_num_threads(),
        }  # fmt: skip
        log.write({"step": 0, "tokens": 0, "seconds": 0.0, "about": about, "validation": asdict(validate(run, held))})
    batches = learn.batches(config.batch, config.length, config.seed, at.step)
    for step in range(at.step + 1, last + 1):
        batch = run.look(*next(batches))
        loss = update(run, optimizer, batch, step)
        at.step, at.tokens, at.seconds = step, at.tokens + int(batch.mask.sum()), time.perf_counter() - began
        line = {"step": step, "loss": loss, "tokens": at.tokens, "seconds": round(at.seconds, 2)}
        if step % config.validate_every == 0 or step == config.steps:
            line["validation"] = asdict(validate(run, held))
        log.write(line)
        if step % config.checkpoint_every == 0 or step == last:
            _store(out, run, optimizer, at)
        speed = (at.tokens - before) / (time.perf_counter() - fresh)
        bar.update(task, completed=step, description=f"{config.method}: loss {loss:.3f}, {speed:,.0f} tokens/s")


def update(run: Run, optimizer: torch.optim.Optimizer, batch: Batch, step: int) -> float:
    """One step, counted from 1; returns its loss.

    Raises:
        ValueError: if the loss is not a finite number. Nothing has changed then.
    """
    for group in optimizer.param_groups:
        group["lr"] = run.config.rate(step - 1)
    optimizer.zero_grad()
    device = run.target.device.type
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        loss = run.loss(batch)
    if not loss.isfinite():
        raise ValueError(
            f"the loss of step {step} is {loss.item()}; a lower learning rate than {run.config.learning_rate} may help"
        )
    loss.backward()
    nn.utils.clip_grad_norm_(run.head.parameters(), run.config.clip)
    optimizer.step()
    return loss.item()


def make_optimizer(head: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW; norms and biases do not decay."""
    matrices = [p for p in head.parameters() if p.dim() >= 2]
    others = [p for p in head.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], betas=(0.9, 0.95), fused=True)


def held_out(run: Run, texts: Source) -> list[Batch]:
    """The first held-out texts of a fixed order, each as a batch of its own, without padding."""
    config, found = run.config, []
    enough = -(-config.validation_texts // config.batch)
    for tokens, mask in islice(texts.batches(config.batch, config.length, 0), enough):
        found += [(row[real][None], real[real][None]) for row, real in zip(tokens, mask, strict=True)]
    long = [(row, real) for row, real in found[: config.validation_texts] if row.shape[1] >= run.least]
    if not long:
        raise ValueError(f"of the first {len(found)} held-out texts none has {run.least} tokens or more")
    return [run.look(row, real) for row, real in long]


def _refuse_another(out: Path, config: TrainConfig) -> None:
    """Raises ValueError if the directory holds a run of another configuration."""
    path = out / CONFIG
    if not path.exists():
        return
    try:
        found = TrainConfig.from_json(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: {error}; choose another directory (--run), or begin anew (--fresh)") from error
    other = [f"{name} = {value!r} (not {wanted!r})" for name, value, wanted in _differences(found, config)]
    if other:
        raise ValueError(f"{out} holds a run with {', '.join(other)}; choose another directory (--run), or begin anew (--fresh)")


def _claim(out: Path, config: TrainConfig, resume: bool) -> None:
    """The directory belongs to this configuration from now on."""
    path = out / CONFIG
    if not resume:
        for old in (*out.glob("checkpoint-*.pt"), out / LOG, out / WEIGHTS, path):
            old.unlink(missing_ok=True)
        shutil.rmtree(out / MODEL, ignore_errors=True)
    if not path.exists():
        with whole_file(path) as part:
            part.write_text(config.to_json())


def _differences(a: TrainConfig, b: TrainConfig) -> list[tuple[str, object, object]]:
    return [(name, value, getattr(b, name)) for name, value in asdict(a).items() if value != getattr(b, name)]


def _store(out: Path, run: Run, optimizer: torch.optim.Optimizer, at: Progressed) -> None:
    """A checkpoint; of the older ones the newest stays, should this one be damaged on the disk."""
    state = {
        "config": run.config.to_json(),
        "head": run.head.state_dict(),
        "optimizer": optimizer.state_dict(),
        "at": asdict(at),
    }
    with whole_file(out / f"checkpoint-{at.step:08d}.pt") as part:
        torch.save(state, part)
    for old in checkpoints(out)[KEPT:]:
        old.unlink()


def checkpoints(out: Path) -> list[Path]:
    """Newest first."""
    return sorted(out.glob("checkpoint-*.pt"), reverse=True)


def _restore(out: Path, run: Run, optimizer: torch.optim.Optimizer) -> Progressed:
    """The newest checkpoint that is whole; the beginning if none is. A damaged one is named on standard error and put out of the way."""
    for path in checkpoints(out):
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            say(f"{path.name} is damaged and left out: {error}")
            path.unlink()
            continue
        check_ids(run, found["head"], path)
        run.head.load_state_dict(found["head"])
        optimizer.load_state_dict(found["optimizer"])
        return Progressed(**found["at"])
    return Progressed()


def check_ids(run: Run, state: dict[str, Tensor], path: Path) -> None:
    """Raises ValueError if the scored tokens of a stored head are not those that the data name now."""
    if run.ids is not None and "ids" in state and not torch.equal(state["ids"], run.ids.cpu()):
        raise ValueError(f"the data have changed since {path} was written: their most frequent tokens are others")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write, which takes its name when it is whole and on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="writing-") as scratch:
        part = Path(scratch) / path.name
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        part.replace(path)


class _Log:
    """The loss curve. What is behind the step that a run goes on from will be computed once more, and is dropped first."""

    def __init__(self, path: Path, step: int):
        kept = [line for line in read_log(path) if line["step"] <= step] if step else []
        with whole_file(path) as part:
            part.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self.path = path

    def __enter__(self) -> _Log:
        self.file = open(self.path, "a", buffering=1)  # a line at a time
        return self

    def __exit__(self, *_) -> None:
        self.file.close()

    def write(self, line: dict) -> None:
        self.file.write(json.dumps(line) + "\n")


def read_log(path: Path) -> list[dict]:
    """The lines of a log.jsonl; a last one that was cut short does not count. [] if there is no such file."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
