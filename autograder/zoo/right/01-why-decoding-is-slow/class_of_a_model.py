"""A class that knows its shape, and functions that ask it."""

from functools import cached_property
from math import prod


class Model:
    def __init__(self, config):
        self.layers, self.width = config["num_hidden_layers"], config["hidden_size"]
        self.q, self.kv = (config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value"))
        self.inner, self.vocabulary = config["intermediate_size"], config["vocab_size"]

    @cached_property
    def weights(self):
        return self.layers * self.width * (2 * (self.q + self.kv) + 3 * self.inner) + self.width * self.vocabulary

    def cache(self, *factors):
        return prod((2, self.layers, self.kv, *factors))


def cache_bytes(config, length, batch=1, bytes_per_number=2):
    return Model(config).cache(length, batch, bytes_per_number)


def weights(config):
    return Model(config).weights


def ridge(rate, bandwidth, bits=16):
    seconds_per_weight = bits / 8 / bandwidth
    return rate / bandwidth, seconds_per_weight * rate / 2


def forward_seconds(config, rate, bandwidth, new=1, length=0, batch=1, bits=16):
    model, tokens = Model(config), new * batch
    times = {
        "memory": (model.weights * bits / 8 + model.cache(length, batch, 2)) / bandwidth,
        "arithmetic": tokens * (2 * model.weights + 4 * model.layers * model.q * length) / rate,
    }
    return times[max(times, key=times.get)]


def largest_batch(config, memory, length, bits=16):
    model = Model(config)
    return max(0, int((memory - model.weights * bits / 8) // model.cache(length, 2)))
