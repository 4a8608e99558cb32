"""Plain loops over layers and matrices, and a batch that grows until the memory is full."""

def cache_bytes(config, length, batch=1, bytes_per_number=2):
    total = 0
    for _layer in range(config["num_hidden_layers"]):
        for _kind in ("keys", "values"):
            total += config["num_key_value_heads"] * config["head_dim"] * bytes_per_number
    return total * length * batch


def weights(config):
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    total = 0
    for _layer in range(config["num_hidden_layers"]):
        for rows, columns in ((hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)):
            total += rows * columns
        total += 3 * hidden * config["intermediate_size"]
        total += 2 * hidden  # two norms
    return total + hidden + hidden * config["vocab_size"]


def ridge(rate, bandwidth, bits=16):
    operations_per_byte = rate / bandwidth
    return [operations_per_byte, operations_per_byte * bits / 16]


def forward_seconds(config, rate, bandwidth, new=1, length=0, batch=1, bits=16):
    reading = weights(config) * bits / 8 / bandwidth + cache_bytes(config, length, batch) / bandwidth
    computing = 0.0
    for _text in range(batch):
        per_token = 2 * weights(config)
        per_token += config["num_hidden_layers"] * config["num_attention_heads"] * 2 * (2 * config["head_dim"] * length)
        computing += new * per_token / rate
    return reading if reading > computing else computing


def largest_batch(config, memory, length, bits=16):
    texts = 0
    while weights(config) * bits / 8 + cache_bytes(config, length, texts + 1) <= memory:
        texts += 1
    return texts
