"""The layers alone.

Caught by: 01.weights
Says: the LM head is left out
"""

def weights(config):
    hidden, n = config["hidden_size"], config["head_dim"]
    attention = 2 * hidden * n * (config["num_attention_heads"] + config["num_key_value_heads"])
    return config["num_hidden_layers"] * (attention + 3 * hidden * config["intermediate_size"])
