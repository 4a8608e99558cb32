"""Computes it and keeps it.

Caught by: 01.cache_bytes
Says: the result is no number
"""

def cache_bytes(config, length, batch=1, bytes_per_number=2):
    size = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * bytes_per_number * length * batch
