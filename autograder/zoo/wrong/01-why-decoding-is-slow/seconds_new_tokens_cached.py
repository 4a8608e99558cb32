"""The new tokens' own keys and values are read, too.

Caught by: 01.forward_seconds
Says: the new tokens are counted as cached
"""

def forward_seconds(config, rate, bandwidth, new=1, length=0, batch=1, bits=16):
    moved = weights(config) * bits / 8 + cache_bytes(config, length + new, batch)
    attention = 4 * config["num_hidden_layers"] * config["num_attention_heads"] * config["head_dim"] * length
    return max(moved / bandwidth, (2 * weights(config) + attention) * new * batch / rate)
