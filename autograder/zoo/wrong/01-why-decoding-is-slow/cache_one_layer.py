"""The cache of one layer.

Caught by: 01.cache_bytes
Says: one layer's cache
"""

def cache_bytes(config, length, batch=1, bytes_per_number=2):
    return 2 * config["num_key_value_heads"] * config["head_dim"] * bytes_per_number * length * batch
