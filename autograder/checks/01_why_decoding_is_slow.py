"""Checks of chapter 01: sizes and times against their formulas, on published models and on shapes that nobody publishes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from autograder.checks.core import SIMPLE, Mistake, Result, Wrong, call, register
from autograder.inside.plain import number, shown

EXACT = 1e-4  # relative: what is a product of whole numbers; nothing that is named below comes so near in every case
NEAR = 0.005  # of weights: whoever counts norms and biases too is right
CLOSE = 0.01  # of times
HALF = 0.5  # of the points, where only a limit is wrong

Config = dict[str, Any]
_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
         "tie_word_embeddings")  # fmt: skip
PUBLISHED = {
    name: dict(zip(_KEYS, shape))
    for name, shape in {
        "SmolLM2-135M": (576, 30, 9, 3, 64, 1536, 49_152, True),
        "Llama-2-7B": (4096, 32, 32, 32, 128, 11_008, 32_000, False),
        "Llama-3.1-8B": (4096, 32, 32, 8, 128, 14_336, 128_256, False),
        "Qwen3-32B": (5120, 64, 64, 8, 128, 25_600, 151_936, False),
        "Llama-3.1-70B": (8192, 80, 64, 8, 128, 28_672, 128_256, False),
    }.items()
}
A100, H100, CPU = (312e12, 2.039e12), (989e12, 3.35e12), (0.3e12, 25e9)  # operations/s, bytes/s


def drawn_config(draw: random.Random) -> Config:
    """Heads that share keys and values, and that are together wider than the model, as in Qwen3: each width is then another number."""
    kv_heads, group, head_dim = draw.choice([2, 4, 8]), draw.choice([2, 4, 8]), draw.choice([64, 128, 256])
    heads = kv_heads * group
    hidden = 64 * max(12, round(heads * head_dim / 64 * draw.choice([0.6, 0.75, 1.5])))
    return dict(zip(_KEYS, (hidden, draw.randint(12, 96), heads, kv_heads, head_dim, 64 * round(hidden * draw.uniform(2.4, 4.5) / 64),
                            1000 * draw.randint(30, 200), draw.random() < 0.5)))  # fmt: skip


# -- the formulas, with what can go wrong in them as options -------------------------------------------------------------


def cache_of(c: Config, length: int, batch: int = 1, size: float = 2, *, twice: float = 2, layers: bool = True,
             of: str = "num_key_value_heads") -> float:  # fmt: skip
    """Bytes of the KV cache."""
    width = c["hidden_size"] if of == "hidden_size" else c[of] * c["head_dim"]
    return twice * (c["num_hidden_layers"] if layers else 1) * width * length * batch * size


def weights_of(c: Config, *, kv: str = "num_key_value_heads", ffn: int = 3, head: bool = True, table: float = 0, square: bool = False,
               out: bool = True, layers: bool = True) -> float:  # fmt: skip
    """Numbers in the matrices of a forward."""
    hidden, wide = c["hidden_size"], c["num_attention_heads"] * c["head_dim"]
    if square:
        attention = 4 * hidden * hidden
    else:
        attention = hidden * ((1 + out) * wide + 2 * c[kv] * c["head_dim"])
    layer = attention + ffn * hidden * c["intermediate_size"]
    return layer * (c["num_hidden_layers"] if layers else 1) + hidden * c["vocab_size"] * (head + table)


def seconds_of(c: Config, rate: float, bandwidth: float, new: int = 1, length: int = 0, batch: int = 1, bits: float = 16, *,
               combined: Callable = max, loads: Callable = lambda new, batch: 1, cache: Callable = lambda new, batch: batch,
               cache_size: Callable = lambda bits: 2, size: Callable = lambda bits: bits / 8, operations: float = 2,
               tokens: Callable = lambda new, batch: new * batch, cached: Callable = lambda length, new: length,
               attended: Callable = lambda length, new: length, of: str = "num_attention_heads", attention: float = 4,
               rows: Callable | None = None) -> float:  # fmt: skip
    """Seconds of a forward, by the roofline."""
    weights = weights_of(c)
    moved = weights * size(bits) * loads(new, batch) + cache_of(c, cached(length, new), 1, cache_size(bits)) * cache(new, batch)
    heads = attention * c["num_hidden_layers"] * c[of] * c["head_dim"] * attended(length, new) * (rows or tokens)(new, batch)
    return combined((moved / bandwidth, (operations * weights * tokens(new, batch) + heads) / rate))


def ridge_of(rate: float, bandwidth: float, bits: float = 16) -> tuple[float, float]:
    """(operations for each byte, tokens)."""
    return rate / bandwidth, rate / bandwidth * bits / 16


def split(c: Config) -> Config:
    """As if the heads of a layer were together as wide as the model."""
    return {**c, "head_dim": c["hidden_size"] // c["num_attention_heads"]}


def longer(length: int, new: int) -> int:
    return length + new


def changed(formula: Callable, **options: Any) -> Callable:
    return lambda *case: formula(*case, **options)


CACHE = [
    Mistake("keys or values are left out: each token has both", "Two vectors a KV head: a key and a value.", changed(cache_of, twice=1)),
    Mistake("every query head has keys and values of its own", "`num_key_value_heads` says how many there are; query heads share them.",
            changed(cache_of, of="num_attention_heads")),
    Mistake("hidden_size is taken for the width of the keys", "Keys are num_key_value_heads · head_dim wide.",
            changed(cache_of, of="hidden_size")),
    Mistake("hidden_size / num_attention_heads is taken for head_dim", "They are two numbers. `head_dim` says how long a key is.",
            lambda c, *rest: cache_of(split(c), *rest)),
    Mistake("one key and one value a layer: the number of KV heads is left out", "Times num_key_value_heads.",
            lambda c, *rest: cache_of(c, *rest) / c["num_key_value_heads"]),
    Mistake("one layer's cache", "Each of the num_hidden_layers layers keeps keys and values of its own.", changed(cache_of, layers=False)),
    Mistake("the batch is left out", "Each text has a cache of its own.", lambda c, length, batch, size: cache_of(c, length, 1, size)),
    Mistake("numbers, not bytes", "Multiply by bytes_per_number.", lambda c, length, batch, size: cache_of(c, length, batch, 1)),
    Mistake("two bytes a number, whatever bytes_per_number says", "Use the argument.",
            lambda c, length, batch, size: cache_of(c, length, batch)),
    Mistake("bits, not bytes", "bytes_per_number is in bytes already.", lambda *case: 8 * cache_of(*case)),
    Mistake("one token's share: the length is left out", "Every cached token has keys and values.",
            lambda c, length, batch, size: cache_of(c, 1, batch, size)),
]  # fmt: skip

WEIGHTS = [
    Mistake("k and v are as wide as q", "Their projections go from hidden_size to num_key_value_heads · head_dim.",
            changed(weights_of, kv="num_attention_heads")),
    Mistake("hidden_size / num_attention_heads is taken for head_dim", "They are two numbers. q goes to num_attention_heads · head_dim.",
            lambda c: weights_of(split(c))),
    Mistake("k or v is left out: each has a matrix", "q, k, v, and out.",
            lambda c: weights_of(c) - c["num_hidden_layers"] * c["hidden_size"] * c["num_key_value_heads"] * c["head_dim"]),
    Mistake("the LM head is counted in every layer", "It comes once, after the last layer.",
            lambda c: weights_of(c) + (c["num_hidden_layers"] - 1) * c["hidden_size"] * c["vocab_size"]),
    Mistake("one matrix is counted twice where the embedding and the LM head are tied", "It is read once: as the LM head.",
            lambda c: weights_of(c, table=c["tie_word_embeddings"])),
    Mistake("two matrices in the feed-forward block: SwiGLU has three", "gate and up, hidden_size → intermediate_size; down, back again.",
            changed(weights_of, ffn=2)),
    Mistake("the LM head is left out", "A forward multiplies by it too: hidden_size × vocab_size.", changed(weights_of, head=False)),
    Mistake("the embedding is counted beside the LM head", "A token takes one row of it; nothing is multiplied by the table.",
            changed(weights_of, table=1)),
    Mistake("the embedding is counted where it is not tied", "All parameters of the file are not those that a forward reads.",
            lambda c: weights_of(c, table=not c["tie_word_embeddings"])),
    Mistake("the LM head is left out where it is tied", "It is the embedding's matrix then, and it is multiplied by all the same.",
            lambda c: weights_of(c, head=not c["tie_word_embeddings"])),
    Mistake("four square matrices for attention", "q, out: num_attention_heads · head_dim wide; k, v: num_key_value_heads · head_dim.",
            changed(weights_of, square=True)),
    Mistake("attention's output projection is left out", "q, k, v, and out.", changed(weights_of, out=False)),
    Mistake("one layer", "Times num_hidden_layers.", changed(weights_of, layers=False)),
    Mistake("bytes, not numbers", "Count the weights; what each takes comes later.", lambda c: 2 * weights_of(c)),
]  # fmt: skip

RIDGE = [
    Mistake("bytes for each operation: the ridge point is upside down", "Operations in a second over bytes in a second.",
            lambda r, m, b: (m / r, m / r * b / 16)),
    Mistake("a multiply-add counted as one operation", "Each weight is two operations a token: n* = (bytes a weight) · ridge / 2.",
            lambda r, m, b: (r / m, r / m * b / 8)),
    Mistake("the bits are ignored", "A weight of 4 bits comes four times as fast as one of 16.", lambda r, m, b: (r / m, r / m)),
    Mistake("bits taken for bytes", "Eight bits are a byte.", lambda r, m, b: (r / m, r / m * b / 2)),
    Mistake("fewer bits, more free tokens: it is the other way round", "Smaller weights come sooner, so arithmetic is the limit sooner.",
            lambda r, m, b: (r / m, r / m * 16 / b)),
    Mistake("the bits move the machine's ridge point", "Operations for each byte belong to the machine; only n* knows the weights' size.",
            lambda r, m, b: (r / m * b / 16, r / m * b / 16)),
    Mistake("n* is kept from falling below 1", "It is what the formula says, below 1 too: one token then waits for arithmetic.",
            lambda r, m, b: (r / m, max(1, r / m * b / 16))),
    Mistake("the pair is the wrong way round", "Return (operations for each byte, tokens).", lambda r, m, b: ridge_of(r, m, b)[::-1]),
]  # fmt: skip

ATTENTION = "Four operations for each layer, query head, number of head_dim, cached token and new token of each text."
COUNTED = "Leave them out, in the bytes and in attention: only `length` tokens are in the cache."
SECONDS = [
    Mistake("the two times are added", "They overlap: the longer one is the time.", changed(seconds_of, combined=sum)),
    Mistake("the shorter of the two times", "Both must be over: the longer one is the time.", changed(seconds_of, combined=min)),
    Mistake("arithmetic takes no time", "Compute both times, and take the longer one.", changed(seconds_of, combined=lambda t: t[0])),
    Mistake("memory takes no time", "Compute both times, and take the longer one.", changed(seconds_of, combined=lambda t: t[1])),
    Mistake("the weights are read for each token", "Once for the whole forward: that is what this book lives on.",
            changed(seconds_of, loads=lambda new, batch: new)),
    Mistake("the weights are read for each text", "Once for the whole batch.", changed(seconds_of, loads=lambda new, batch: batch)),
    Mistake("the weights are read for each token of each text", "Once for the whole forward.",
            changed(seconds_of, loads=lambda new, batch: new * batch)),
    Mistake("the cache is not read", "Attention reads all keys and values of each text.", changed(seconds_of, cache=lambda new, batch: 0)),
    Mistake("one cache for the whole batch", "Each text has its own.", changed(seconds_of, cache=lambda new, batch: 1)),
    Mistake("the cache is read for each new token", "Once for each text: its new tokens share it.",
            changed(seconds_of, cache=lambda new, batch: new * batch)),
    Mistake("the cache is as small as the weights", "`bits` are a weight's; keys and values have 2 bytes.",
            changed(seconds_of, cache_size=lambda bits: bits / 8)),
    Mistake("a multiply-add counted as one operation", "Two operations for each weight and token.", changed(seconds_of, operations=1)),
    Mistake("the arithmetic of one token, whatever `new` is", "Each new token is multiplied by each weight.",
            changed(seconds_of, tokens=lambda new, batch: batch)),
    Mistake("the arithmetic of one text, whatever `batch` is", "Each text's tokens are multiplied by each weight.",
            changed(seconds_of, tokens=lambda new, batch: new)),
    Mistake("attention's arithmetic is left out", ATTENTION, changed(seconds_of, attention=0)),
    Mistake("two operations in attention, not four", ATTENTION, changed(seconds_of, attention=2)),
    Mistake("attention's arithmetic is that of the KV heads", ATTENTION, changed(seconds_of, of="num_key_value_heads")),
    Mistake("attention's arithmetic is done once for each text, whatever `new` is", ATTENTION,
            changed(seconds_of, rows=lambda new, batch: batch)),
    Mistake("attention's arithmetic is that of one text, whatever `batch` is", ATTENTION, changed(seconds_of, rows=lambda new, batch: new)),
    Mistake("the new tokens are counted as cached", COUNTED, changed(seconds_of, cached=longer)),
    Mistake("the new tokens are counted as cached", COUNTED, changed(seconds_of, attended=longer)),
    Mistake("the new tokens are counted as cached", COUNTED, changed(seconds_of, cached=longer, attended=longer)),
    Mistake("bits taken for bytes", "Eight bits are a byte.", changed(seconds_of, size=lambda bits: bits)),
    Mistake("the bits are ignored", "A weight takes bits / 8 bytes.", changed(seconds_of, size=lambda bits: 2)),
    Mistake("milliseconds", "The answer is in seconds.", lambda *case: 1000 * seconds_of(*case)),
]  # fmt: skip


# -- checks --------------------------------------------------------------------------------------------------------------


@register("01.cache_bytes", SIMPLE)
def cache_bytes(student: Callable, seed: int) -> Result:
    draw = random.Random(f"cache {seed}")
    cases = [(config, 4096, 1, 2) for config in PUBLISHED.values()]
    cases += [(drawn_config(draw), draw.randint(3, 20_000), draw.randint(2, 40), draw.choice([1, 4])) for _ in range(20)]
    picture = _beside(student, PUBLISHED, lambda c: (c, 4096, 1, 2), cache_of, "Cache of 4096 tokens", "GB", 1e9)
    _compare(student, "cache_bytes", cases, cache_of, CACHE, EXACT, picture, "2 · layers · KV heads · head_dim numbers for each token.")
    _limit(student, "cache_bytes", (PUBLISHED["Llama-3.1-8B"], 0, 1, 2), 0.0, "No token, no bytes.")
    return Result(True, f"{len(cases)} caches are right, with and without grouped heads", picture=picture)


@register("01.weights", SIMPLE)
def weights(student: Callable, seed: int) -> Result:
    draw = random.Random(f"weights {seed}")
    cases = [(config,) for config in [*PUBLISHED.values(), *(drawn_config(draw) for _ in range(20))]]
    picture = _beside(student, PUBLISHED, lambda c: (c,), weights_of, "Weights that a forward reads", "billions", 1e9)
    _compare(student, "weights", cases, weights_of, WEIGHTS, NEAR, picture, "Add up the matrices of one layer on paper.")
    return Result(True, f"{len(cases)} models are right to {NEAR:.1%}, tied ones among them", picture=picture)


@register("01.ridge", SIMPLE)
def ridge(student: Callable, seed: int) -> Result:
    draw = random.Random(f"ridge {seed}")
    cases = [(*H100, 16), (*A100, 8), (*CPU, 4.5), (20e9, 25e9, 4)]  # on the last not even one token is free
    cases += [(draw.uniform(0.05, 900) * 1e12, draw.uniform(0.02, 5) * 1e12, draw.choice([2, 3, 4, 8])) for _ in range(20)]
    answers = [_pair(call(student, *case, what=f"ridge{case}")) for case in cases]
    shown = {f"{bits} bits": _pair(call(student, *H100, bits))[1] for bits in (16, 8, 4)}
    right = [H100[0] / H100[1] * bits / 16 for bits in (16, 8, 4)]
    picture = {"kind": "beside", "labels": list(shown), "right": right, "student": list(shown.values()),
               "title": "Tokens for the price of one on an H100", "ylabel": "n*", "xlabel": "a weight"}  # fmt: skip
    _judge("ridge", cases, [x for pair in answers for x in pair], [x for case in cases for x in ridge_of(*case)],
           [(m, [x for case in cases for x in m.variant(*case)]) for m in RIDGE], EXACT, picture, "Divide rate by bandwidth.")  # fmt: skip
    return Result(True, f"{len(cases)} machines are right, from 2 to 16 bits a weight", picture=picture)


@register("01.forward_seconds", SIMPLE)
def forward_seconds(student: Callable, seed: int) -> Result:
    draw = random.Random(f"seconds {seed}")
    eight, seventy, small = PUBLISHED["Llama-3.1-8B"], PUBLISHED["Llama-3.1-70B"], PUBLISHED["SmolLM2-135M"]
    cases = [
        (seventy, *H100, 1, 0, 1, 16), (seventy, *H100, 8, 0, 1, 4), (small, *CPU, 1, 0, 1, 16), (small, *CPU, 64, 0, 1, 16),
        (eight, *A100, 1, 8000, 16, 16), (eight, *A100, 4, 8000, 16, 4), (eight, *A100, 1000, 100_000, 1, 16),
        (small, *H100, 200, 0, 1, 16),  # the new tokens' own keys and values would be more than the tolerance
        (small, *CPU, 2, 0, 400, 16),  # so many texts that the arithmetic of one token of each takes longer than memory
    ]  # fmt: skip
    for _ in range(24):
        config, machine, bits = drawn_config(draw), draw.choice([A100, H100, CPU]), draw.choice([4, 8, 16])
        new, batch = draw.choice([1, 2, 5, 8, 40]), draw.choice([1, 3, 16, 60])
        cases.append((config, *machine, new, draw.choice([0, 10_000, 100_000]), batch, bits))
    widths = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    shown = [_number(call(student, eight, *H100, n, 0, 1, 16, what="forward_seconds")) * 1000 for n in widths]
    right = [seconds_of(eight, *H100, n) * 1000 for n in widths]
    picture = {"kind": "lines", "x": widths, "right": right, "student": shown, "title": "Llama-3.1-8B on an H100",
               "xlabel": "new tokens in one forward", "ylabel": "ms"}  # fmt: skip
    _compare(student, "forward_seconds", cases, seconds_of, SECONDS, CLOSE, picture,
             "It calls `weights` and `cache_bytes`: get those two checks to pass first. Then compute one case by hand.")  # fmt: skip
    return Result(True, f"{len(cases)} forwards are right to {CLOSE:.0%}, waiting for memory or for arithmetic", picture=picture)


@register("01.largest_batch", SIMPLE)
def largest_batch(student: Callable, seed: int) -> Result:
    """Memory is drawn so that a third or two thirds of one text more would fit: how norms and biases are counted does not matter."""
    draw = random.Random(f"batch {seed}")
    cases = []
    for _ in range(30):
        config, bits, batch = drawn_config(draw), draw.choice([4, 8, 16]), draw.randint(1, 30)
        own = weights_of(config) * bits / 8
        length = math.ceil(own * draw.uniform(0.05, 0.5) / cache_of(config, 1))
        cases.append((config, own + (batch + draw.choice([0.3, 0.7])) * cache_of(config, length), length, bits))
    answers = [_number(call(student, *_own(case), what="largest_batch")) for case in cases]
    right = [float(batch_of(*case)) for case in cases]
    variants = [(m, [max(0, m.variant(*case)) for case in cases]) for m in BATCH]
    shown = [(PUBLISHED["Llama-3.1-8B"], memory, 8192, 16) for memory in (24e9, 40e9, 80e9, 160e9)]
    picture = {"kind": "beside", "labels": [f"{memory / 1e9:.0f} GB" for _, memory, *_ in shown], "right": [batch_of(*c) for c in shown],
               "student": [_number(call(student, *_own(c))) for c in shown],
               "title": "Llama-3.1-8B: texts of 8192 tokens that fit", "ylabel": "texts", "xlabel": "memory"}  # fmt: skip
    part = next((i for i, answer in enumerate(answers) if answer % 1), None)
    if part is not None:
        expected = f"{right[part]:g} for {_shown('largest_batch', cases[part])}"
        raise Wrong("not a whole number of texts", expected, f"{answers[part]:.6g}", "Round down: half a text does not decode.", picture)
    _judge("largest_batch", cases, [max(0, a) for a in answers], right, variants, 1e-3, picture,
           "It calls `weights` and `cache_bytes`: get those two checks to pass first.")  # fmt: skip
    none = (PUBLISHED["Llama-3.1-70B"], 80e9, 1000, 16)
    _limit(student, "largest_batch", none, 0.0, "Weights of 139 GB do not fit into 80 GB, and no text beside them.", picture)
    return Result(True, f"{len(cases) + 1} batches are right, one of a model that does not fit", picture=picture)


def batch_of(c: Config, memory: float, length: int, bits: float) -> int:
    return max(0, math.floor(_batch(c, memory, length, bits)))


def _batch(c: Config, memory: float, length: int, bits: float, weights: bool = True, **options: Any) -> float:
    """Before rounding."""
    return (memory - weights * weights_of(c) * bits / 8) / cache_of(c, length, **options)


BATCH = [
    Mistake("rounded up: the last text does not fit", "Round down.", lambda *case: math.ceil(_batch(*case))),
    Mistake("rounded to the nearest: the last text may not fit", "Round down.", lambda *case: round(_batch(*case))),
    Mistake("the weights take no memory", "They lie in the same memory: take them off first.",
            lambda *case: math.floor(_batch(*case, weights=False))),
    Mistake("the weights are counted for each text", "They lie in memory once, for all texts.",
            lambda c, memory, length, bits: math.floor(memory / (weights_of(c) * bits / 8 + cache_of(c, length)))),
    Mistake("16 bits a weight, whatever `bits` says", "A weight takes bits / 8 bytes.",
            lambda c, memory, length, bits: math.floor(_batch(c, memory, length, 16))),
    Mistake("bits taken for bytes", "Eight bits are a byte.",
            lambda c, memory, length, bits: math.floor(_batch(c, memory, length, 8 * bits))),
    Mistake("every query head has keys and values of its own", "Use your cache_bytes.",
            lambda *case: math.floor(_batch(*case, of="num_attention_heads"))),
    Mistake("one token's cache for each text", "Each text keeps `length` tokens.",
            lambda c, memory, length, bits: math.floor(_batch(c, memory, 1, bits))),
    Mistake("the cache has the weights' bits", "`bits` are a weight's; keys and values have 2 bytes.",
            lambda c, memory, length, bits: math.floor(_batch(c, memory, length, bits, size=bits / 8))),
]  # fmt: skip


# -- comparing -----------------------------------------------------------------------------------------------------------


def _compare(student: Callable, name: str, cases: list[tuple], right: Callable, catalogue: list[Mistake], near: float,
             picture: dict, hint: str) -> None:  # fmt: skip
    """Raises Wrong at the first value that is further off than `near`, relatively."""
    answers = [_number(call(student, *_own(case), what=name)) for case in cases]
    variants = [(mistake, [float(mistake.variant(*case)) for case in cases]) for mistake in catalogue]
    _judge(name, cases, answers, [float(right(*case)) for case in cases], variants, near, picture, hint)


def _judge(name: str, cases: list[tuple], answers: list[float], right: list[float], variants: list[tuple[Mistake, list[float]]],
           near: float, picture: dict, hint: str) -> None:  # fmt: skip
    wrong = next((i for i, pair in enumerate(zip(answers, right)) if not _is_near(*pair, near)), None)
    if wrong is None:
        return
    named = next((m for m, values in variants if all(_is_near(a, v, near) for a, v in zip(answers, values))), None)
    case = cases[wrong * len(cases) // len(answers)]
    raise Wrong(
        named.name if named else f"{name} is wrong", f"{right[wrong]:.6g} for {_shown(name, case)}", f"{answers[wrong]:.6g}",
        named.hint if named else hint, picture,
    )  # fmt: skip


def _limit(student: Callable, name: str, case: tuple, right: float, hint: str, picture: dict | None = None) -> None:
    answer = _number(call(student, *_own(case), what=name))
    if answer != right:
        raise Wrong(f"wrong at a limit: {name}", f"{right:g} for {_shown(name, case)}", f"{answer:.6g}", hint, picture, credit=HALF)


def _beside(student: Callable, models: dict[str, Config], case: Callable, right: Callable, title: str, unit: str, scale: float) -> dict:
    answers = [_number(call(student, *_own(case(config)))) / scale for config in models.values()]
    return {"kind": "beside", "labels": list(models), "right": [right(*case(config)) / scale for config in models.values()],
            "student": answers, "title": title, "ylabel": unit, "xlabel": "model", "log": True}  # fmt: skip


def _own(case: tuple) -> tuple:
    """With a configuration of its own, in which the student's code may write."""
    return tuple(dict(part) if isinstance(part, dict) else part for part in case)


def _is_near(a: float, b: float, near: float) -> bool:
    return a == b or abs(a - b) <= near * abs(b)


def _number(answer: Any) -> float:
    try:
        found = number(answer)
    except ValueError:
        raise Wrong("the result is no number", "a number", shown(answer)) from None
    if not math.isfinite(found):
        raise Wrong("the result is no finite number", "a number", shown(answer))
    return found


def _pair(answer: Any) -> tuple[float, float]:
    try:
        first, second = answer
    except (TypeError, ValueError):
        hint = "Return both: `return operations_per_byte, tokens`."
        raise Wrong("ridge did not return a pair", "a pair such as (295.2, 295.2)", shown(answer), hint) from None
    return _number(first), _number(second)


def _shown(name: str, case: Sequence[Any]) -> str:
    """The arguments by their names; a published model by its own, another one by its numbers."""
    known = {tuple(config.values()): model for model, config in PUBLISHED.items()}
    parts = []
    for argument, value in zip(_ARGUMENTS[name], case):
        if isinstance(value, dict):
            parts.append(known.get(tuple(value.values())) or ", ".join(f"{key} {number}" for key, number in value.items()))
        else:
            parts.append(f"{argument} {value:.6g}")
    return ", ".join(parts)


_ARGUMENTS = {
    "cache_bytes": ("config", "length", "batch", "bytes_per_number"),
    "weights": ("config",),
    "ridge": ("rate", "bandwidth", "bits"),
    "forward_seconds": ("config", "rate", "bandwidth", "new", "length", "batch", "bits"),
    "largest_batch": ("config", "memory", "length", "bits"),
}
