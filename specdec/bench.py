"""`specdec bench`: every method beside plain decoding, on every workload. A table, a figure, and a JSON file with everything."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated

import matplotlib.pyplot as plt
import torch
import typer
from rich.console import Console
from rich.progress import Progress

from specdec import plots
from specdec.console import new_console
from specdec.distributions import Sampling
from specdec.drafters import Combine, Drafter
from specdec.forwards import WIDTHS, forward_costs
from specdec.measure import PLAIN, Runner, compare, limits, quartiles, texts_in
from specdec.methods import METHODS, WEIGHTS, Settings, build, canonical, has_random_heads, heads_of, weights_of
from specdec.models import SMOLLM2, Transformer, load_model
from specdec.progress import progress, say
from specdec.showing import fitting_table
from specdec.tables import heading, label, limits_table, markdown, overview, parts_at, temperatures, verify_table
from specdec.theory import interpolated_cost
from specdec.workloads import WORKLOADS, Workload

USUAL = Settings()
Pair = tuple[Settings, Settings]  # at temperature 0, and above it
# Small trees: the packed kernel takes 6 rows at once, the root among them (a seventh costs a second pass), and the heads are not often
# right beyond their second token. Those for temperature 0 were tried on a prompt of each workload that the benchmark does not run by
# default; those above it follow from the acceptance rates.
TUNED: dict[str, Pair] = {
    "draft-model": (Settings(k=1), Settings(k=1)),
    "distilled": (Settings(k=2), Settings(k=1)),
    "medusa": (Settings(tree=(2, 1)), Settings(tree=(2,))),
    "eagle-1": (Settings(tree=(1,)), Settings(tree=(1,))),
    "eagle-2": (Settings(depth=2, beam=2, budget=3), Settings(depth=1, beam=2, budget=2)),
    "eagle-3": (Settings(depth=2, beam=2, budget=3), Settings(depth=1, beam=2, budget=2)),
    "lookahead": (Settings(window=3, ngram=2, pool=2), Settings(window=1, ngram=2, pool=1)),
    "prompt-lookup": (Settings(ngram=3, k=5), Settings(ngram=3, k=2)),
}
# Where several methods share a tree each gets less of it: a pair for each part.
JOINED: dict[str, tuple[Pair, ...]] = {
    "eagle-3+prompt-lookup": (
        (Settings(depth=2, beam=1, budget=2), Settings(depth=1, beam=2, budget=2)),
        (Settings(ngram=3, k=5), Settings(ngram=3, k=2)),
    ),
}
PEERS = Path(__file__).parents[1] / "benchmarks" / "peers.py"
DEFAULT = ",".join([*METHODS, *JOINED])


def settings_of(name: str, greedy: bool) -> list[Settings]:
    """For each part of the name."""
    name = canonical(name)
    pairs = JOINED.get(name) or [TUNED.get(part, (USUAL, USUAL)) for part in name.split("+")]
    return [pair[0 if greedy else 1] for pair in pairs]


def drafter_of(name: str, target: Transformer, greedy: bool, folder: Path | None = WEIGHTS) -> Drafter | None:
    """The method with its tuned settings and its trained weights. Raises ValueError if a name is unknown or weights do not fit."""
    drafter = None
    for part, settings in zip(canonical(name).split("+"), settings_of(name, greedy), strict=True):
        if part not in METHODS:
            raise ValueError(f"unknown method {part!r}; choose from {', '.join(METHODS)}, or several joined by +")
        built = build(part, target, replace(settings, weights=weights_of(part, folder)))
        drafter = built if drafter is None else Combine(drafter, built)
    return drafter


def bench(
    workload: Annotated[
        list[str] | None, typer.Option(help=f"One or several of {', '.join(WORKLOADS)}; without, all that suit the model.")
    ] = None,
    temperature: Annotated[list[float], typer.Option(help="One or several.")] = [0.0, 1.0],  # noqa: B006 - typer copies it
    methods: Annotated[str, typer.Option(help="Names with commas between them; + joins several into one tree.")] = DEFAULT,
    repeats: Annotated[int | None, typer.Option(min=1, help="Every speed is the median of these; 5 without.")] = None,
    tokens: Annotated[int | None, typer.Option(min=2, help="For each text; 96 without.")] = None,
    prompts: Annotated[int | None, typer.Option(min=1, max=6, help="Of each workload; 3 without.")] = None,
    quick: Annotated[bool, typer.Option(help="One prompt of each workload, 2 repeats, 16 tokens: does it work?")] = False,
    peers: Annotated[bool, typer.Option(help="At temperature 0 transformers and llama.cpp take turns too.")] = False,
    weights: Annotated[
        Path | None, typer.Option(help="A folder of trained heads; else the package's, or the model's directory. Missing ones are random.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of table, figure and JSON.")] = Path("benchmarks/results"),
    seed: Annotated[int, typer.Option()] = 0,
    model: Annotated[str, typer.Option(help=f"{SMOLLM2}, or a path.")] = SMOLLM2,
    device: Annotated[str, typer.Option()] = "cpu",
) -> None:
    """Measure every method beside plain decoding; a run that was killed goes on where it stopped. Keep the machine quiet.

    With all workloads and temperatures it takes long; `--quick` shows whether everything works.
    """
    asked = [_workload(name) for name in workload or ()]
    if weights is not None and not weights.is_dir():
        raise ValueError(f"--weights takes a folder of trained heads, and {weights} is none")
    target = load_model(model, device, torch.bfloat16)
    folder = weights or heads_of(model)
    if target.tokenizer is None:
        raise ValueError(f"{model} has no tokenizer, so it cannot continue a text")
    chosen = asked or _suited(target)
    about = {
        "model": model, "dtype": "bfloat16", "activations": str(target.dtype).removeprefix("torch."), "machine": machine(target),
        "threads": torch.get_num_threads(), "torch": torch.__version__, "quick": quick, "prompts": prompts or (1 if quick else 3),
        "repeats": repeats or (2 if quick else 5), "tokens": tokens or (16 if quick else 96), "seed": seed,
        "methods": {name: _described(name, folder) for name in map(canonical, methods.split(","))},
        "peers": [], "notes": [],
        "texts": _digest(repr([(one.name, one.texts) for one in WORKLOADS.values()]).encode()),
    }  # fmt: skip
    runs = _Runs(target, about, folder, out / f"{_stem(quick)}.parts")
    parts = [(one, t) for t in dict.fromkeys(temperature) for one in chosen]
    for _, t in parts:
        runs.drafters(Sampling(t))  # an error in a name, a temperature or a file shows before hours of work
    if peers:
        runs.peers, about["notes"] = _load_peers().runners(target, about["tokens"])
        about["peers"] = list(runs.peers)
    results = runs.measure(parts)
    save(results, out)
    shutil.rmtree(runs.folder)
    show(results, new_console())


def _workload(name: str) -> Workload:
    if name not in WORKLOADS:
        raise ValueError(f"unknown workload {name!r}; choose from {', '.join(WORKLOADS)}")
    return WORKLOADS[name]


def _suited(target: Transformer) -> list[Workload]:
    """All workloads, but for messages that a model without a chat template has no form for."""
    found = [one for one in WORKLOADS.values() if not one.chat or target.tokenizer.chat_template is not None]
    if len(found) < len(WORKLOADS):
        left = ", ".join(name for name, one in WORKLOADS.items() if one not in found)
        say(f"The model has no chat template; left out: {left}.")
    return found


def _stem(quick: bool) -> str:
    return "bench_quick" if quick else "bench"  # a trial run must not replace what was measured


def machine(target: Transformer) -> str:
    if target.device.type == "cuda":
        return torch.cuda.get_device_name(target.device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{name or 'CPU'}, {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _described(name: str, folder: Path | None) -> dict:
    """What a method ran with, in words of JSON: a part that was measured with anything else is measured again."""
    files = {part: weights_of(part, folder) for part in name.split("+")}
    digests = {part: _digest(path.read_bytes()) for part, path in files.items() if path}

    def told(greedy: bool) -> list[dict]:
        known = [asdict(settings) for settings in settings_of(name, greedy)]
        return json.loads(json.dumps([{key: value for key, value in one.items() if key != "weights"} for one in known]))

    return {"random": has_random_heads(name, folder), "weights": digests, "greedy": told(True), "drawn": told(False)}


def _load_peers() -> ModuleType:
    """benchmarks/peers.py belongs to the repository and not to the package: it measures what the package does not depend on."""
    if not PEERS.is_file():
        raise ValueError(f"--peers needs {PEERS}, which is there in a clone of the repository")
    spec = importlib.util.spec_from_file_location("specdec_peers", PEERS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Runs:
    """The parts of a benchmark, one (workload, temperature) each. What is finished lies in `folder`."""

    def __init__(self, target: Transformer, about: dict, weights: Path | None, folder: Path):
        self.target, self.about, self.weights, self.folder = target, about, weights, folder
        self.peers: dict[str, Runner] = {}
        self.built: dict[bool, dict[str, Drafter | None]] = {}

    def drafters(self, sampling: Sampling) -> dict[str, Drafter | None]:
        """All methods for that sampling. Raises ValueError if one cannot be built."""
        greedy, names = sampling.greedy, self.about["methods"]
        if greedy not in self.built:
            self.built[greedy] = {PLAIN: None} | {name: drafter_of(name, self.target, greedy, self.weights) for name in names}
        return self.built[greedy]

    def measure(self, parts: Sequence[tuple[Workload, float]]) -> dict:
        with progress() as bar:
            verify = self._kept("verify", lambda: self._verify([Sampling(t) for _, t in parts]))
            found = [
                self._kept(f"{one.name}-{t:g}", lambda one=one, t=t: self._part(one, Sampling(t), verify, bar))
                for one, t in parts
            ]
        return {"about": self.about, "verify": verify, "parts": found}

    def _kept(self, name: str, measure) -> dict:
        """The part of that name, from the folder if it was measured there with the same machine and settings."""
        path = self.folder / f"{name}.json"
        stored = json.loads(path.read_text()) if path.exists() else {}
        if stored.get("about") != self.about:
            stored = {"about": self.about, "part": measure()}
            write(path, json.dumps(stored, indent=1))
        return stored["part"]

    def _verify(self, samplings: Sequence[Sampling]) -> dict:
        largest = max(d.max_nodes for sampling in samplings for d in self.drafters(sampling).values() if d)
        widths = list(WIDTHS)
        while widths[-1] <= largest:
            widths.append(2 * widths[-1])
        return {str(width): asdict(cost) for width, cost in forward_costs(self.target, widths).items()}

    def _part(self, workload: Workload, sampling: Sampling, verify: dict, bar: Progress) -> dict:
        about, target, drafters = self.about, self.target, self.drafters(sampling)
        room = target.config.max_length - about["tokens"] - 1  # one more is drafted behind a text's last token where limits are looked at
        prompts = workload.prompts(target.tokenizer, room)[: about["prompts"]]
        peers = self.peers if sampling.greedy else {}
        total = texts_in(len(drafters) + len(peers), len(prompts), about["repeats"])
        task = bar.add_task(f"{workload.name}, T = {sampling.temperature:g}", total=total)
        cost = interpolated_cost({int(width): cost["seconds"] for width, cost in verify.items()})
        rows, texts = compare(
            target, drafters, prompts, sampling, about["tokens"], about["repeats"], about["seed"], target.tokenizer.stop_tokens,
            cost, peers, lambda: bar.advance(task),
        )  # fmt: skip
        bar.remove_task(task)
        random = {name: told["random"] for name, told in about["methods"].items()}
        told = {
            name: asdict(row) | {"predicted": row.predicted, "random": random.get(name, False), "peer": name in peers}
            for name, row in rows.items()
        }
        bounds = None if sampling.greedy else asdict(limits(target, drafters, list(zip(prompts, texts, strict=True)), sampling))
        return {"workload": workload.name, "temperature": sampling.temperature, "rows": told, "limits": bounds}


def write(path: Path, text: str) -> None:
    """A file appears under its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        part = Path(scratch) / path.name
        part.write_text(text, encoding="utf-8")
        part.replace(path)


def save(results: dict, out: Path) -> None:
    """Writes the JSON, the Markdown and the figure."""
    stem = _stem(results["about"]["quick"])
    write(out / f"{stem}.json", json.dumps(results, indent=1) + "\n")
    write(out / f"{stem}.md", markdown(results))
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        part = Path(scratch) / f"{stem}.png"
        figure(results).savefig(part, dpi=120)
        part.replace(out / f"{stem}.png")
    plt.close("all")


def figure(results: dict) -> plt.Figure:
    """For each temperature the bars of every method and workload, and beside them what was predicted."""
    levels = temperatures(results)
    grid = plots.new_axes(14, 4.2 * len(levels), nrows=len(levels), ncols=2, width_ratios=(3, 1), squeeze=False)
    for (bars, points), t in zip(grid, levels, strict=True):
        parts = parts_at(results, t)
        names = {name: label(name, row) for name, row in parts[0]["rows"].items() if name != PLAIN}
        ratios = {
            shown: {part["workload"]: quartiles(part["rows"][name]["ratios"]) for part in parts}
            for name, shown in names.items()
        }
        plots.speedup_bars(ratios, bars).set_title(f"T = {t:g}")
        bars.legend(frameon=False, ncols=1, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        pairs = {
            shown: [(part["rows"][name]["predicted"], ratios[shown][part["workload"]][1]) for part in parts]
            for name, shown in names.items()
            if not parts[0]["rows"][name]["peer"]
        }
        plots.predicted_and_measured(pairs, points)
    return grid[0, 0].figure


def show(results: dict, console: Console) -> None:
    """A table for each temperature, on the terminal."""
    tables = [(f"T = {t:g}", *overview(results, t)) for t in temperatures(results)]
    for title, header, rows in [*tables, ("Cost of a forward", *verify_table(results)), ("Limits", *limits_table(results))]:
        if not rows:
            continue
        console.print(fitting_table(header, rows, title, console))
    console.print(heading(results), style="dim")
