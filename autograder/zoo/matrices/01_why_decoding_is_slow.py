"""Chapter 01: sizes and times out of parts, in nine styles, and the mistakes as replaced parts.

Parts are factors, widths of matrices, and sums of a few terms; a style says of which kind the numbers are, how they are multiplied and
added up, and how the largest batch is found.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import torch

from autograder.zoo.matrix import Matrix, Mistake

# -- the right parts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A configuration, by short names."""

    config: dict

    heads = property(lambda self: self.config["num_attention_heads"])
    head = property(lambda self: self.config["head_dim"])
    hidden = property(lambda self: self.config["hidden_size"])
    layers = property(lambda self: self.config["num_hidden_layers"])
    q = property(lambda self: self.config["num_attention_heads"] * self.config["head_dim"])
    kv = property(lambda self: self.config["num_key_value_heads"] * self.config["head_dim"])
    ffn = property(lambda self: self.config["intermediate_size"])
    vocab = property(lambda self: self.config["vocab_size"])
    tied = property(lambda self: self.config["tie_word_embeddings"])


def of_a_layer(s):
    return [(s.hidden, s.q), (s.hidden, s.kv), (s.hidden, s.kv), (s.q, s.hidden), (s.hidden, s.ffn), (s.hidden, s.ffn), (s.ffn, s.hidden)]


@dataclass(frozen=True)
class Parts:
    cache: Callable = lambda s, length, batch, size: [2, s.layers, s.kv, length, batch, size]  # factors
    layer: Callable = of_a_layer  # widths of matrices
    layers: Callable = lambda s: s.layers
    last: Callable = lambda s: [(s.hidden, s.vocab)]  # matrices that are there once
    unit: Callable = lambda weights: weights
    ridge: Callable = lambda rate, bandwidth, bits: (rate / bandwidth, rate / bandwidth * bits / 8 / 2)
    # Of a forward: its weights, its caches (length, batch, bytes a number) → bytes, and what it was asked.
    size: Callable = lambda bits: bits / 8
    moved: Callable = lambda f: f.weights * f.parts.size(f.bits) + f.cache(f.length, f.batch, 2)
    attention: Callable = lambda f: 4 * f.shape.layers * f.shape.q * f.length
    operations: Callable = lambda f: (2 * f.weights + f.parts.attention(f)) * f.new * f.batch
    time: Callable = max
    scale: float = 1
    # Of a batch: what so many texts need, and how a share of a text is rounded.
    need: Callable = lambda f, texts: f.weights * f.bits / 8 + texts * f.cache(f.length, 1, 2)
    rounded: Callable = lambda texts: math.floor(float(texts))
    least: Callable = lambda texts: max(0, texts)


# -- styles ------------------------------------------------------------------------------------------------------------


def divided(parts, f, memory):
    alone = parts.need(f, 0)
    return parts.least(parts.rounded((memory - alone) / (parts.need(f, 1) - alone)))


def counted(parts, f, memory):
    texts = 0
    while parts.need(f, texts + 1) <= memory:
        texts += 1
    return texts


def halved(parts, f, memory):
    low, high = 0, 2**40
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if parts.need(f, middle) <= memory else (low, middle - 1)
    return low


def looped(factors):
    total = 1
    for factor in factors:
        total = total * factor
    return total


def recursive(terms):
    return terms[0] + recursive(terms[1:]) if len(terms) > 1 else terms[0]


def by_layers(s, parts, number, product, total):
    """Layer by layer."""
    result = number(0)
    for _ in range(parts.layers(s)):
        for matrix in parts.layer(s):
            result += product([number(side) for side in matrix])
    return result + total([product([number(side) for side in matrix]) for matrix in parts.last(s)] or [number(0)])


def at_once(s, parts, number, product, total):
    one = total([product([number(side) for side in matrix]) for matrix in parts.layer(s)])
    return parts.layers(s) * one + total([product([number(side) for side in matrix]) for matrix in parts.last(s)] or [number(0)])


@dataclass(frozen=True)
class Style:
    number: Callable = lambda x: x
    product: Callable = looped
    total: Callable = sum
    weights: Callable = at_once
    batch: Callable = divided


class Forward:
    """What a forward knows."""

    def __init__(self, style, parts, config, **asked):
        self.style, self.parts, self.shape, self.new = style, parts, Shape(config), 1
        vars(self).update({name: style.number(value) for name, value in asked.items()})

    @property
    def weights(self):
        style, parts = self.style, self.parts
        return parts.unit(style.weights(self.shape, parts, style.number, style.product, style.total))

    def cache(self, *how):
        return self.style.product([self.style.number(factor) for factor in self.parts.cache(self.shape, *how)])

    def seconds(self, rate, bandwidth):
        return self.parts.time(self.parts.moved(self) / bandwidth, self.parts.operations(self) / rate) * self.parts.scale


class Largest:
    """An object that is called."""

    def __init__(self, style, parts):
        self.style, self.parts = style, parts

    def __call__(self, config, memory, length, bits=16):
        return self.style.batch(self.parts, Forward(self.style, self.parts, config, length=length, bits=bits), memory)


def written(**how: Any) -> Callable:
    """A style of the exercise's five functions."""
    style = Style(**how)

    def functions(**replaced: Any) -> dict[str, Callable]:
        parts = replace(Parts(), **replaced)

        def forward_seconds(config, rate, bandwidth, new=1, length=0, batch=1, bits=16):
            forward = Forward(style, parts, config, new=new, length=length, batch=batch, bits=bits)
            return forward.seconds(style.number(rate), style.number(bandwidth))

        return {
            "cache_bytes": lambda config, length, batch=1, size=2: Forward(style, parts, config).cache(length, batch, size),
            "weights": lambda config: Forward(style, parts, config).weights,
            "ridge": lambda rate, bandwidth, bits=16: parts.ridge(*map(style.number, (rate, bandwidth, bits))),
            "forward_seconds": forward_seconds,
            "largest_batch": Largest(style, parts),
        }

    return functions


STYLES = {
    "plain": written(product=math.prod),
    "loops": written(weights=by_layers, batch=counted),
    "recursion": written(total=recursive, batch=halved),
    "reduce": written(product=lambda factors: reduce(lambda a, b: a * b, factors)),
    "floats": written(number=float, total=math.fsum, batch=counted),
    "numpy": written(number=np.float64, product=np.prod, total=np.sum),
    "float32": written(number=np.float32, weights=by_layers),
    "whole numpy": written(product=lambda f: np.prod(np.array([float(x) for x in f])), total=lambda t: np.array(t).sum(), batch=halved),
    "torch": written(number=lambda x: torch.tensor(float(x), dtype=torch.float64), total=lambda t: torch.stack(t).sum()),
}
DIVIDED = ("plain", "reduce", "numpy", "float32", "torch")  # the other styles have nothing to round

# -- mistakes ----------------------------------------------------------------------------------------------------------


def mistake(check: str, name: str, says: str = "", styles: tuple[str, ...] = (), **parts: Any) -> Mistake:
    return Mistake(name, f"01.{check}", says or name, parts, styles, parts.pop("unnamed", {}))


def cache(name: str, factors: Callable, says: str = "") -> Mistake:
    return mistake("cache_bytes", name, says, cache=factors)


def weights(name: str, says: str = "", **parts: Any) -> Mistake:
    return mistake("weights", name, says, **parts)


def without(*places: int) -> Callable:
    return lambda s: [matrix for i, matrix in enumerate(of_a_layer(s)) if i not in places]


def ridge(name: str, pair: Callable) -> Mistake:
    return mistake("ridge", name, ridge=pair)


def seconds(name: str, says: str = "", **parts: Any) -> Mistake:
    return mistake("forward_seconds", name, says, **parts)


def moved(name: str, loads: Callable = lambda f: 1, caches: Callable = lambda f: f.batch, size: Callable = lambda f: 2) -> Mistake:
    return seconds(name, moved=lambda f: f.weights * f.bits / 8 * loads(f) + f.cache(f.length, 1, size(f)) * caches(f))


def batch(name: str, says: str = "", **parts: Any) -> Mistake:
    return mistake("largest_batch", name, says, **parts)


MISTAKES = [
    cache("keys or values are left out", lambda s, length, batch, size: [s.layers, s.kv, length, batch, size]),
    cache("every query head has keys and values of its own", lambda s, length, batch, size: [2, s.layers, s.q, length, batch, size]),
    cache("hidden_size is taken for the width of the keys", lambda s, length, batch, size: [2, s.layers, s.hidden, length, batch, size]),
    cache("hidden_size / num_attention_heads is taken for head_dim",
          lambda s, length, batch, size: [2, s.layers, s.kv // s.head * (s.hidden // s.heads), length, batch, size]),
    cache("the number of KV heads is left out", lambda s, length, batch, size: [2, s.layers, s.head, length, batch, size]),
    cache("one layer's cache", lambda s, length, batch, size: [2, s.kv, length, batch, size]),
    cache("the batch is left out", lambda s, length, batch, size: [2, s.layers, s.kv, length, size]),
    cache("numbers, not bytes", lambda s, length, batch, size: [2, s.layers, s.kv, length, batch]),
    cache("two bytes a number", lambda s, length, batch, size: [2, s.layers, s.kv, length, batch, 2]),
    cache("bits, not bytes", lambda s, length, batch, size: [2, s.layers, s.kv, length, batch, size, 8]),
    cache("the length is left out", lambda s, length, batch, size: [2, s.layers, s.kv, batch, size]),
    cache("one token more", lambda s, length, batch, size: [2, s.layers, s.kv, length + 1, batch, size], says="cache_bytes is wrong"),
    weights("k and v are as wide as q", layer=lambda s: [(s.hidden, s.q)] * 4 + [(s.hidden, s.ffn)] * 3),
    weights("two matrices in the feed-forward block", layer=without(4)),
    weights("the LM head is left out", last=lambda s: []),
    weights("the embedding is counted beside the LM head", last=lambda s: [(s.hidden, s.vocab)] * 2),
    weights("the embedding is counted where it is not tied", last=lambda s: [(s.hidden, s.vocab)] * (1 if s.tied else 2)),
    weights("the LM head is left out where it is tied", last=lambda s: [(s.hidden, s.vocab)] * (not s.tied)),
    weights("four square matrices for attention", layer=lambda s: [(s.hidden, s.hidden)] * 4 + [(s.hidden, s.ffn)] * 3),
    weights("attention's output projection is left out", layer=without(3)),
    weights("k or v is left out", layer=without(2)),
    weights("hidden_size / num_attention_heads is taken for head_dim",
            layer=lambda s: [(a // s.head * (s.hidden // s.heads) if a in (s.q, s.kv) else a, b // s.head * (s.hidden // s.heads) if b in (s.q, s.kv)
                              else b) for a, b in of_a_layer(s)]),
    weights("the LM head is counted in every layer", layer=lambda s: [*of_a_layer(s), (s.hidden, s.vocab)], last=lambda s: []),
    weights("one matrix is counted twice", last=lambda s: [(s.hidden, s.vocab)] * (1 + s.tied)),
    weights("one layer", layers=lambda s: 1),
    weights("bytes, not numbers", unit=lambda weights: 2 * weights),
    ridge("upside down", lambda r, m, b: (m / r, m / r * b / 16)),
    ridge("a multiply-add counted as one operation", lambda r, m, b: (r / m, r / m * b / 8)),
    ridge("the bits are ignored", lambda r, m, b: (r / m, r / m)),
    ridge("bits taken for bytes", lambda r, m, b: (r / m, r / m * b / 2)),
    ridge("fewer bits, more free tokens", lambda r, m, b: (r / m, r / m * 16 / b)),
    ridge("the bits move the machine's ridge point", lambda r, m, b: (r / m * b / 16, r / m * b / 16)),
    ridge("n* is kept from falling below 1", lambda r, m, b: (r / m, max(r / m * b / 16, 1))),
    ridge("the wrong way round", lambda r, m, b: (r / m * b / 16, r / m)),
    seconds("the two times are added", time=lambda a, b: a + b),
    seconds("the shorter of the two times", time=min),
    seconds("arithmetic takes no time", time=lambda a, b: a),
    seconds("memory takes no time", time=lambda a, b: b),
    moved("the weights are read for each token", loads=lambda f: f.new),
    moved("the weights are read for each text", loads=lambda f: f.batch),
    moved("the weights are read for each token of each text", loads=lambda f: f.new * f.batch),
    moved("the cache is not read", caches=lambda f: 0),
    moved("one cache for the whole batch", caches=lambda f: 1),
    moved("the cache is read for each new token", caches=lambda f: f.new * f.batch),
    moved("the cache is as small as the weights", size=lambda f: f.bits / 8),
    seconds("a multiply-add counted as one operation", operations=lambda f: (f.weights + f.parts.attention(f)) * f.new * f.batch),
    seconds("the arithmetic of one token", operations=lambda f: (2 * f.weights + f.parts.attention(f)) * f.batch),
    seconds("the arithmetic of one text", operations=lambda f: (2 * f.weights + f.parts.attention(f)) * f.new),
    seconds("attention's arithmetic is left out", attention=lambda f: 0),
    seconds("two operations in attention, not four", attention=lambda f: 2 * f.shape.layers * f.shape.q * f.length),
    seconds("attention's arithmetic is done once for each text",
            operations=lambda f: (2 * f.weights * f.new + f.parts.attention(f)) * f.batch),
    seconds("attention's arithmetic is that of one text",
            operations=lambda f: (2 * f.weights * f.batch + f.parts.attention(f)) * f.new),
    seconds("the new tokens' bytes", "the new tokens are counted as cached",
            moved=lambda f: f.weights * f.bits / 8 + f.cache(f.length + f.new, f.batch, 2)),
    seconds("the new tokens in attention", "the new tokens are counted as cached",
            attention=lambda f: 4 * f.shape.layers * f.shape.q * (f.length + f.new)),
    seconds("attention's arithmetic is that of the KV heads",
            attention=lambda f: 4 * f.shape.layers * f.shape.kv * f.length),
    seconds("bits taken for bytes", size=lambda bits: bits),
    seconds("the bits are ignored", size=lambda bits: 2),
    seconds("milliseconds", scale=1000),
    batch("not a whole number of texts", rounded=lambda texts: texts, styles=DIVIDED),
    batch("rounded up", rounded=lambda texts: math.ceil(float(texts)), styles=DIVIDED),
    batch("rounded to the nearest", rounded=lambda texts: round(float(texts)), styles=DIVIDED),
    batch("a batch below zero", "wrong at a limit", least=lambda texts: texts, styles=DIVIDED),
    batch("at least one text", "wrong at a limit", least=lambda texts: max(1, texts), styles=DIVIDED),
    batch("the weights take no memory", need=lambda f, texts: texts * f.cache(f.length, 1, 2)),
    batch("the weights are counted for each text", need=lambda f, texts: texts * (f.weights * f.bits / 8 + f.cache(f.length, 1, 2))),
    batch("16 bits a weight", need=lambda f, texts: 2 * f.weights + texts * f.cache(f.length, 1, 2)),
    batch("bits taken for bytes", need=lambda f, texts: f.weights * f.bits + texts * f.cache(f.length, 1, 2)),
    batch("one token's cache for each text", need=lambda f, texts: f.weights * f.bits / 8 + texts * f.cache(1, 1, 2),
          unnamed=dict.fromkeys(("loops", "floats"), "counting up to so many texts does not end in time")
          | {"float32": "single precision rounds so many texts by more than the catalogue allows"}),
    batch("the cache has the weights' bits", need=lambda f, texts: f.weights * f.bits / 8 + texts * f.cache(f.length, 1, f.bits / 8)),
    batch("every query head has keys and values of its own",
          cache=lambda s, length, batch, size: [2, s.layers, s.q, length, batch, size]),
]  # fmt: skip

MATRIX = Matrix("01-why-decoding-is-slow", STYLES, tuple(MISTAKES))
