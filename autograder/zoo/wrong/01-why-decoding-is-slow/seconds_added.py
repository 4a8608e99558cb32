"""One after the other.

Caught by: 01.forward_seconds
Says: the two times are added
"""

def forward_seconds(config, rate, bandwidth, new=1, length=0, batch=1, bits=16):
    moved = weights(config) * bits / 8 + cache_bytes(config, length, batch)
    attention = 4 * config["num_hidden_layers"] * config["num_attention_heads"] * config["head_dim"] * length
    return moved / bandwidth + (2 * weights(config) + attention) * new * batch / rate
