"""Other programs on the same weights, for `specdec bench --peers`: transformers (generate, an assistant model, prompt lookup) and
llama.cpp. Each continues the same ids greedily, up to the same number of tokens or a stop token.
"""

from __future__ import annotations

import copy
import importlib.util
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median

import torch

from specdec.bench import settings_of
from specdec.measure import Runner
from specdec.models import Transformer
from specdec.models.checkpoints import smollm2_path
from specdec.results import Round


def runners(target: Transformer, max_new_tokens: int) -> tuple[dict[str, Runner], list[str]]:
    """A runner for each way of running a program, and a sentence about each program: its version, or that it is not installed.

    Raises:
        ValueError: if the target is not on the CPU: the rows would compare machines.
    """
    if target.device.type != "cpu":
        raise ValueError(f"--peers compares on the CPU, and the model is on {target.device}")
    found: dict[str, Runner] = {}
    notes = []
    for package, maker in {"transformers": with_transformers, "xllamacpp": with_llama_cpp}.items():
        if importlib.util.find_spec(package) is None:
            notes.append(f"The rows of {package} are left out: it is not installed.")
        else:
            found |= maker(target, max_new_tokens)
            notes.append(f"{package} is version {version(package)}.")
    return found, notes


class Stamps:
    """A streamer for `generate`: it notes when which new tokens came. The prompt comes first, and is not one of them."""

    def __init__(self) -> None:
        self.rounds: list[Round] = []
        self.began = time.perf_counter()
        self.seen_prompt = False

    def put(self, ids: torch.Tensor) -> None:
        if not self.seen_prompt:
            self.seen_prompt = True
            return
        now, tokens = time.perf_counter(), ids.flatten().tolist()
        # How many tokens were drafted it does not tell; with 0 nothing is said about α.
        self.rounds.append(Round(tokens, len(tokens) - 1, 0, "plain", now - self.began))
        self.began = now

    def end(self) -> None:
        """Nothing is held back."""


def with_transformers(target: Transformer, max_new_tokens: int) -> dict[str, Runner]:
    """generate alone, with the target's first layers as the assistant, and with prompt lookup; drafts as long as in our own rows."""
    model, dtype = _faster_dtype()
    (draft,), (lookup,) = settings_of("draft-model", True), settings_of("prompt-lookup", True)
    assistant = copy.deepcopy(model)
    assistant.model.layers = assistant.model.layers[: draft.layers_of(target)]
    assistant.config.num_hidden_layers = draft.layers_of(target)
    length = {"num_assistant_tokens": draft.k, "num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0}
    assistant.generation_config.update(**length)
    options = {
        "max_new_tokens": max_new_tokens, "do_sample": False, "eos_token_id": list(target.tokenizer.stop_tokens), "pad_token_id": 0,
    }  # fmt: skip

    def runner(**more) -> Runner:
        @torch.inference_mode()
        def run(ids: list[int], seed: int) -> list[Round]:
            stamps, prompt = Stamps(), torch.tensor([ids])
            model.generate(prompt, attention_mask=torch.ones_like(prompt), streamer=stamps, **options, **more)
            return cut(stamps.rounds, max_new_tokens)

        return run

    return {
        f"transformers, {dtype}": runner(),
        "transformers, assistant": runner(assistant_model=assistant),
        "transformers, prompt lookup": runner(prompt_lookup_num_tokens=lookup.k, max_matching_ngram_size=lookup.ngram),
    }


def cut(rounds: list[Round], budget: int) -> list[Round]:
    """The rounds up to the budget: an assisted round may hand over more than was asked for."""
    kept = []
    for one in rounds:
        if budget <= 0:
            break
        tokens = one.tokens[:budget]
        kept.append(Round(tokens, min(one.accepted, len(tokens)), one.drafted, one.last, one.seconds))
        budget -= len(tokens)
    return kept


def _faster_dtype():
    """transformers' reading of the GGUF, in bfloat16 or float32: whichever makes the faster single steps here."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    path = smollm2_path()
    wide = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    models = {"float32": wide, "bfloat16": copy.deepcopy(wide).to(torch.bfloat16)}
    best = min(models, key=lambda name: _seconds(lambda: models[name](torch.tensor([[1]]))))
    return models[best], best


@torch.inference_mode()
def _seconds(call: Callable[[], object], repeats: int = 8) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return median(times[1:])


def with_llama_cpp(target: Transformer, max_new_tokens: int) -> dict[str, Runner]:
    """Plain greedy decoding on the 4-bit weights themselves, by llama.cpp's own clock. It does not tell its ids."""
    import xllamacpp

    threads, about = torch.get_num_threads(), xllamacpp.CommonParams()
    about.model.path = str(smollm2_path())
    about.n_ctx, about.n_parallel, about.verbosity = 2048, 1, 0
    about.cpuparams.n_threads = about.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(about)

    def run(ids: list[int], seed: int) -> list[Round]:
        request = {"prompt": ids, "n_predict": max_new_tokens, "temperature": 0, "cache_prompt": False}
        told = server.handle_completions(request)["timings"]
        later = int(told["predicted_n"]) - 1  # the first token comes of the prompt's forward
        step = told["predicted_ms"] / 1000 / max(later, 1)
        return [Round([-1], 0, 0, "plain", seconds) for seconds in [told["prompt_ms"] / 1000, *[step] * later]]

    return {"llama.cpp, 4 bits": run}
