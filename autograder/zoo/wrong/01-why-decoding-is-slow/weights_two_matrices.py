"""The feed-forward block of an older transformer.

Caught by: 01.weights
Says: two matrices in the feed-forward block
"""

def weights(config):
    hidden, n = config["hidden_size"], config["head_dim"]
    attention = 2 * hidden * n * (config["num_attention_heads"] + config["num_key_value_heads"])
    return config["num_hidden_layers"] * (attention + 2 * hidden * config["intermediate_size"]) + hidden * config["vocab_size"]
