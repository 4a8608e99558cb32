"""The size of a head is computed, as it may be for Llama and may not for Qwen3.

Caught by: 01.cache_bytes
Says: hidden_size / num_attention_heads is taken for head_dim
"""

def cache_bytes(config, length, batch=1, bytes_per_number=2):
    head = config["hidden_size"] // config["num_attention_heads"]
    return 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head * length * batch * bytes_per_number
