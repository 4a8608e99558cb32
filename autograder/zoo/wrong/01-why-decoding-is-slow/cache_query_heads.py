"""As before grouped heads were invented.

Caught by: 01.cache_bytes
Says: every query head has keys and values of its own
"""

def cache_bytes(config, length, batch=1, bytes_per_number=2):
    return 2 * config["num_hidden_layers"] * config["num_attention_heads"] * config["head_dim"] * bytes_per_number * length * batch
