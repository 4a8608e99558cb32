"""All that lies in the file.

Caught by: 01.weights
Says: the embedding is counted where it is not tied
"""

def weights(config):
    hidden, n = config["hidden_size"], config["head_dim"]
    attention = 2 * hidden * n * (config["num_attention_heads"] + config["num_key_value_heads"])
    tables = 1 if config["tie_word_embeddings"] else 2
    return config["num_hidden_layers"] * (attention + 3 * hidden * config["intermediate_size"]) + tables * hidden * config["vocab_size"]
