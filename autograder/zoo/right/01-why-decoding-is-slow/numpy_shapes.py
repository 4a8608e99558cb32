"""Shapes as arrays, numbers as numpy's, with a print."""

import numpy as np


def cache_bytes(config, length, batch=1, bytes_per_number=2):
    shape = (2, config["num_hidden_layers"], batch, config["num_key_value_heads"], length, config["head_dim"])
    return np.prod(np.array(shape, dtype=np.float64)) * bytes_per_number


def weights(config):
    d, n = config["hidden_size"], config["head_dim"]
    outputs = np.array([config["num_attention_heads"] * n] * 2 + [config["num_key_value_heads"] * n] * 2 + [config["intermediate_size"]] * 3)
    print("matrices of a layer:", len(outputs))
    return np.int64(d) * (config["num_hidden_layers"] * outputs.sum() + config["vocab_size"])


def ridge(rate, bandwidth, bits=16):
    return np.array([1, bits / 16]) * rate / bandwidth


def forward_seconds(config, rate, bandwidth, new=1, length=0, batch=1, bits=16):
    per_text = np.full(batch, cache_bytes(config, length))
    per_token = 2 * weights(config) + 4 * length * config["num_hidden_layers"] * config["num_attention_heads"] * config["head_dim"]
    times = np.array([(weights(config) * bits / 8 + per_text.sum()) / bandwidth, per_token * new * batch / rate])
    return times.max()


def largest_batch(config, memory, length, bits=16):
    left = memory - weights(config) * bits / 8
    return np.clip(left // cache_bytes(config, length), 0, None)
