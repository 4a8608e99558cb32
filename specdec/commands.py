"""The commands of `specdec` that run a model: `cli` fetches them where one is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer

from specdec.bench import bench
from specdec.console import clear_errors, new_console
from specdec.continuation import Continuation
from specdec.decoding import stream
from specdec.distributions import Sampling
from specdec.methods import METHODS, READS, Settings, build, canonical, check_read, has_random_heads, heads_of
from specdec.models import SMOLLM2, load_model
from specdec.models import fetch as fetch_model
from specdec.prompts import prompt_ids
from specdec.results import Round, Stats
from specdec.showing import Painter, comparison
from specdec.training import commands as training

app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.add_typer(training.app)
app.command()(clear_errors()(bench))
console = new_console()
USUAL = Settings()
WARM_UP = 8  # tokens
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


class DtypeName(str, Enum):
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"


@app.command()
def fetch(force: Annotated[bool, typer.Option(help="Download again even if it is there.")] = False) -> None:
    """Bring SmolLM2-135M-Instruct (98 MB) into the cache and check its SHA-256."""
    with clear_errors():
        console.print(f"SmolLM2-135M-Instruct lies in {fetch_model(force)}", soft_wrap=True)


@app.command()
def generate(
    context: typer.Context,
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads standard input.")],
    drafter: Annotated[str, typer.Option(help=f"Who guesses: none, {', '.join(METHODS)}, or several joined by +.")] = "prompt-lookup",
    k: Annotated[int, typer.Option(help="draft-model, distilled, prompt-lookup: tokens of a chain.")] = USUAL.k,
    layers: Annotated[int | None, typer.Option(help="draft-model: so many of the target's first layers; a third without.")] = None,
    tree: Annotated[str | None, typer.Option(help="draft-model, distilled, medusa, eagle-1: children by level, as in 3,2,1.")] = None,
    depth: Annotated[int, typer.Option(help="eagle-2, eagle-3: levels of the tree.")] = USUAL.depth,
    beam: Annotated[int, typer.Option(help="eagle-2, eagle-3: nodes expanded in a level, and children of each.")] = USUAL.beam,
    budget: Annotated[int, typer.Option(help="eagle-2, eagle-3: nodes of the tree.")] = USUAL.budget,
    ngram: Annotated[int, typer.Option(help="prompt-lookup, lookahead: tokens of the longest n-gram.")] = USUAL.ngram,
    candidates: Annotated[int, typer.Option(help="prompt-lookup: occurrences to copy from.")] = USUAL.candidates,
    window: Annotated[int, typer.Option(help="lookahead: columns of guesses.")] = USUAL.window,
    pool: Annotated[int, typer.Option(help="lookahead: n-grams proposed at most.")] = USUAL.pool,
    weights: Annotated[
        Path | None, typer.Option(help="distilled, medusa, eagle: a file of trained heads; else the package's, or the model's directory's.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int | None, typer.Option()] = None,
    top_p: Annotated[float | None, typer.Option()] = None,
    min_p: Annotated[float | None, typer.Option()] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The budget.")] = 128,
    width: Annotated[int | None, typer.Option(help="Tokens of every forward: one text in any precision.")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    chat: Annotated[bool, typer.Option(help="Put the prompt into the model's chat template.")] = False,
    compare: Annotated[bool, typer.Option(help="Run plain decoding too, and set the two side by side.")] = False,
    model: Annotated[str, typer.Option(help=f"{SMOLLM2}, shakespeare-gpt, or a path.")] = SMOLLM2,
    device: Annotated[str, typer.Option()] = "cpu",
    dtype: Annotated[DtypeName, typer.Option()] = DtypeName.bfloat16,
) -> None:
    """Continue a text: accepted, recovered and bonus tokens in their colours, then what speculation gained."""
    with clear_errors():
        drafter, told = canonical(drafter), dict.fromkeys(name for names in READS.values() for name in names)
        check_read(drafter, [name for name in told if context.get_parameter_source(name).name == "COMMANDLINE"])
        sampling = Sampling(temperature, top_k, top_p, min_p)
        branching = None if tree is None else _numbers(tree)
        settings = Settings(k, layers, branching, depth, beam, budget, ngram, candidates, window, pool, weights)
        target = load_model(model, device, DTYPES[dtype.value])
        if target.tokenizer is None:
            raise ValueError(f"{model} has no tokenizer, so it cannot continue a text")
        folder = heads_of(model)
        chosen = build(drafter, target, settings, folder)
        text = _standard_input() if prompt == "-" else prompt
        ids = prompt_ids(target, target.tokenizer.chat(text) if chat else text)
        runs: dict[str, tuple[Stats, Painter]] = {}
        texts: dict[str, list[int]] = {}
        guessers = {drafter: chosen, "none": None} if compare else {drafter: chosen}
        for guesser in guessers.values():  # the first rounds choose kernels and trace layers
            list(stream(target, ids, guesser, sampling, min(WARM_UP, max_new_tokens), target.tokenizer.stop_tokens, seed, width))
        for name, guesser in guessers.items():
            console.rule("plain decoding" if name == "none" else name, style="dim")
            rounds = stream(target, ids, guesser, sampling, max_new_tokens, target.tokenizer.stop_tokens, seed, width)
            painter = Painter(console)
            stats, texts[name] = _print_stream(rounds, Continuation(target.tokenizer.decode, ids), painter)
            runs[name] = stats, painter
        console.print(comparison(runs))
        if weights is None and has_random_heads(drafter, folder):
            console.print("The heads are random: exact, but no help. Give trained ones with --weights.", style="dim")
        if compare and drafter != "none":
            _say_where_texts_part(texts[drafter], texts["none"], sampling, dtype.value, width)


def _standard_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is no valid {error.encoding}: byte {error.start} is 0x{error.object[error.start]:02x}") from error


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"--tree takes whole numbers with commas between them, as in 3,2,1; got {text!r}")
    return tuple(map(int, parts))


def _print_stream(rounds: Iterator[Round], text: Continuation, painter: Painter) -> tuple[Stats, list[int]]:
    stats, ids, kind = Stats(), [], "plain"
    for round in rounds:
        stats.add(round)
        painter.count(round)
        ids += round.tokens
        for i, token in enumerate(round.tokens):
            kind = "accepted" if i < round.accepted else round.last
            if piece := text.push([token]):  # a character's bytes may be spread over several tokens
                painter.print(piece, kind)
    if rest := text.finish():
        painter.print(rest, kind)
    painter.end()
    return stats, ids


def _say_where_texts_part(drafted: list[int], plain: list[int], sampling: Sampling, dtype: str, width: int | None) -> None:
    if not sampling.greedy:
        console.print("At a temperature above 0 the two texts are different draws from the same distribution.", style="dim")
        return
    same = next((i for i, (a, b) in enumerate(zip(drafted, plain)) if a != b), None)
    if same is None:
        console.print(f"The two texts are equal, all {len(plain)} tokens.")
    else:
        console.print(
            f"The texts are equal for {same} tokens and part at token {same + 1}: in {dtype} a row's logits are rounded differently "
            "in a forward of one token and in one of several, and near a tie the argmax flips. Try --width 8, or --dtype float32."
            if width is None
            else f"The texts part at token {same + 1}, which a fixed width does not allow: please report it."
        )
