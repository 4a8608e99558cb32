"""Keys, and no values.

Caught by: 01.cache_bytes
Says: keys or values are left out
"""

def cache_bytes(config, length, batch=1, bytes_per_number=2):
    return config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * bytes_per_number * length * batch
