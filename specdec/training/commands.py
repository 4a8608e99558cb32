"""`specdec harvest`, `specdec train` and `specdec card`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import torch
import typer

from specdec.console import clear_errors, new_console
from specdec.device import usable
from specdec.models import SMOLLM2, load_model
from specdec.progress import say
from specdec.training import cards, trainer
from specdec.training import harvest as harvests
from specdec.training.config import OPTIONS, Harvest, TrainConfig
from specdec.training.texts import Texts

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
console = new_console()
USUAL = TrainConfig("eagle-3", "")


def _usual(name: str) -> str:
    """Of an option whose value depends on the method."""
    return "; ".join(f"{method}: {options[name]}" for method, options in OPTIONS.items() if name in options)


@app.command()
def harvest(
    to: Annotated[Path, typer.Option(help="The directory to write to.")],
    tokens: Annotated[int, typer.Option(help="How many tokens the target is to generate.")] = 3_000_000,
    seed: Annotated[int, typer.Option()] = 0,
    model: Annotated[str, typer.Option(help=f"{SMOLLM2}, or a path.")] = SMOLLM2,
    features: Annotated[bool, typer.Option(help="Keep the target's features too, 4.6 kB a token: training is then faster.")] = True,
    threads: Annotated[int | None, typer.Option(help="Of this process. Several processes may write into one directory.")] = None,
    device: Annotated[str, typer.Option()] = "cpu",
) -> None:
    """Let the target write texts to train on. Stopped and started again, it goes on where it was."""
    with clear_errors():
        if threads:
            torch.set_num_threads(threads)
        target = load_model(model, device)
        config = Harvest.suited_to(target)
        if not config.chat:
            say(f"{model} has no chat template: it continues code and Shakespeare alone, and answers nobody.")
        harvests.harvest(target, to, tokens, seed, config, features)
        for split in ("train", "held_out"):
            texts = Texts(to, split)
            console.print(f"{split}: {len(texts):,} texts, {texts.total_tokens:,} tokens")


@app.command()
def train(
    method: Annotated[str, typer.Argument(help=f"{', '.join(OPTIONS)} (eagle is eagle-3; eagle-2 drafts with the head of eagle-1).")],
    data: Annotated[
        str, typer.Option(help="The directory that `specdec harvest` wrote, or shakespeare, code, prose: a corpus itself.")
    ],
    to: Annotated[Path, typer.Option(help="Where it goes: a .safetensors file; gpt: a directory, to be given as --model.")],
    run: Annotated[
        Path | None, typer.Option(help="Directory of configuration, log and checkpoints; FILE.run by default.")
    ] = None,
    fresh: Annotated[bool, typer.Option(help="Begin anew, whatever the run's directory holds.")] = False,
    stop_after: Annotated[int | None, typer.Option(help="Stop at this step; the schedule stays that of all steps.")] = None,
    device: Annotated[str, typer.Option()] = "cpu",
    model: Annotated[
        str | None, typer.Option(help=f"The target: a name or a path. {SMOLLM2}; gpt is a target of its own.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Texts of a step.")] = USUAL.batch,
    length: Annotated[int, typer.Option(help="The most tokens of a text.")] = USUAL.length,
    steps: Annotated[int, typer.Option()] = USUAL.steps,
    learning_rate: Annotated[float, typer.Option(help="The highest.")] = USUAL.learning_rate,
    warmup: Annotated[int, typer.Option(help="Steps in which it rises.")] = USUAL.warmup,
    final_rate: Annotated[float, typer.Option(help="The part of it that is left at the end.")] = USUAL.final_rate,
    weight_decay: Annotated[float, typer.Option()] = USUAL.weight_decay,
    clip: Annotated[float, typer.Option(help="The longest gradient.")] = USUAL.clip,
    seed: Annotated[int, typer.Option()] = USUAL.seed,
    checkpoint_every: Annotated[int, typer.Option()] = USUAL.checkpoint_every,
    validate_every: Annotated[int, typer.Option()] = USUAL.validate_every,
    validation_texts: Annotated[int, typer.Option()] = USUAL.validation_texts,
    draft_vocab: Annotated[int | None, typer.Option(help=f"Tokens scored, 0 for all. {_usual('draft_vocab')}.")] = None,
    init: Annotated[
        str | None, typer.Option(help=f"target (distill: first, last, spread) or random. {_usual('init')}.")
    ] = None,
    loss: Annotated[str | None, typer.Option(help=f"kl, overlap, or tokens (medusa). {_usual('loss')}.")] = None,
    layers: Annotated[int | None, typer.Option(help=f"Of the draft, or of the gpt. {_usual('layers')}.")] = None,
    heads: Annotated[int | None, typer.Option(help=f"How many. {_usual('heads')}.")] = None,
    ttt_steps: Annotated[int | None, typer.Option(help=f"Of the training-time test. {_usual('ttt_steps')}.")] = None,
    own_head: Annotated[bool | None, typer.Option(help=f"Train and store an LM head. {_usual('own_head')}.")] = None,
    hidden_size: Annotated[int | None, typer.Option(help=f"A multiple of 32. {_usual('hidden_size')}.")] = None,
    features: Annotated[bool | None, typer.Option(help="Learn from the features that the harvest kept, not from forwards.")] = None,
) -> None:
    """Train a head, or a draft, on what the target says; or a small target. Stopped and started again, it ends at the same weights."""
    with clear_errors():
        config = TrainConfig(
            method, data, model, batch, length, steps, learning_rate, warmup, final_rate, weight_decay, clip, seed, checkpoint_every,
            validate_every, validation_texts, draft_vocab, init, loss, layers, heads, ttt_steps, own_head, hidden_size, features,
        )  # fmt: skip
        usable(device)
        run = to.with_suffix(".run") if run is None else run
        last = steps if stop_after is None else min(stop_after, steps)
        say(f"{_how_far(run, fresh)} Stopped, the same command goes on from its newest checkpoint; --fresh begins anew.")
        _place(trainer.train(config, run, not fresh, device, stop_after), to)
        if last < steps:
            say(f"Stopped at step {last:,} of {steps:,}; the same command without --stop-after goes on.")
        console.print(cards.card(run, str(to)), soft_wrap=True)


def _how_far(run: Path, fresh: bool) -> str:
    """Where a run begins, in a sentence."""
    found = trainer.checkpoints(run)
    return f"Goes on after {found[0].stem} in {run}." if found and not fresh else f"Begins in {run}."


def _place(made: Path, to: Path) -> None:
    """Copies a file; or a directory's files, the configuration that makes it a model last."""
    if made.is_dir():
        (to / trainer.CONFIG).unlink(missing_ok=True)
        for file in sorted(made.iterdir(), key=lambda file: file.name == trainer.CONFIG):
            _place(file, to / file.name)
        return
    with trainer.whole_file(to) as part:
        shutil.copyfile(made, part)


@app.command()
def card(
    run: Annotated[Path, typer.Argument(help="The directory of a training run.")],
    to: Annotated[str, typer.Option(help="The weights' name in the card's command.")],
    figure: Annotated[Path | None, typer.Option(help="Draw the curves into this file.")] = None,
) -> None:
    """Print a run's card, Markdown: command, data, tokens, time, loss curve, α by depth, τ."""
    with clear_errors():
        typer.echo(cards.card(run, to))
        if figure is not None:
            cards.figure(run, figure)
