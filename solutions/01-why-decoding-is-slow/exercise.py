# %% [markdown]
# # Exercise: predict the speed of a model that you do not have
#
# **When you are done you can**
#
# - compute the size of a KV cache and the number of weights from a model's `config.json`,
# - say how many tokens of one forward come at the price of one, on any machine and with weights of any size,
# - predict the time of a forward, and how many texts fit into a memory.
#
# Nothing here runs a model: a configuration and two numbers of a data sheet are enough. Five tasks, about 50 minutes.
#
# A configuration is a dictionary with the keys of Hugging Face's `config.json`. Keys and values of the cache have 2 bytes a number throughout, unless an argument says otherwise.

# %%
import math

from autograder.checks import check

LLAMA_8B = {
    "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128256, "tie_word_embeddings": False,
}  # Llama-3.1-8B
LLAMA_70B = {
    **LLAMA_8B, "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "intermediate_size": 28672,
}

# %% [markdown]
# ## Task 1: the size of the cache (2 points, 5 minutes, easy)
#
# For every text, layer and cached token the model keeps a key and a value for each KV head. Each is a vector of `head_dim` numbers. How many bytes is that?
#
# <details>
# <summary>Hint</summary>
#
# `num_attention_heads` counts the query heads, which share keys and values in groups. It plays no part here.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "cache_bytes", "locked": false, "schema_version": 3, "solution": true, "task": false}
def cache_bytes(config, length, batch=1, bytes_per_number=2):
    """Bytes of the KV cache of `batch` texts with `length` tokens each."""
    ### BEGIN SOLUTION
    numbers = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    return numbers * bytes_per_number * length * batch
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_cache_bytes", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("01.cache_bytes", cache_bytes)
### BEGIN HIDDEN TESTS
check("01.cache_bytes", cache_bytes, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# What this check cannot see: what a real server adds to it, such as pages that are only partly filled.
#
# <details>
# <summary>Expected output</summary>
#
# Pairs of equal bars for five models, and
# `✓ 01.cache_bytes: 25 caches are right, with and without grouped heads`.
# Of the models with 7 and with 8 billion weights, the smaller one keeps four times as much.
#
# </details>

# %% [markdown]
# ## Task 2: the weights that a forward reads (2 points, 15 minutes, medium)
#
# Count the numbers in all matrices that a forward multiplies by. With $D$ = `hidden_size`, a layer of a Llama-style model has
#
# | matrix | from | to |
# |---|---|---|
# | q | $D$ | query heads · head_dim |
# | k, v (each) | $D$ | KV heads · head_dim |
# | out | query heads · head_dim | $D$ |
# | gate, up (each) | $D$ | `intermediate_size` |
# | down | `intermediate_size` | $D$ |
#
# and after all layers comes the LM head, from $D$ to `vocab_size`. The embedding is a table from which each token takes one row: nothing is multiplied by it. Where
# `tie_word_embeddings` is true, the LM head *is* that table. It is multiplied by all the same.
#
# Norms and biases are less than a thousandth. Count them or leave them out: the answer may be off by 0.5 %.
#
# <details>
# <summary>Hint</summary>
#
# Llama-3.1-8B has 8.03 billion parameters, 0.53 billion of which are its embedding. Your answer is the difference. In Qwen3 query heads · head_dim is not $D$: do not take one for the other.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "weights", "locked": false, "schema_version": 3, "solution": true, "task": false}
def weights(config):
    """Numbers in the matrices of a forward, the LM head's too."""
    ### BEGIN SOLUTION
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    q_and_out = 2 * hidden * config["num_attention_heads"] * head_dim
    k_and_v = 2 * hidden * config["num_key_value_heads"] * head_dim
    feed_forward = 3 * hidden * config["intermediate_size"]
    return config["num_hidden_layers"] * (q_and_out + k_and_v + feed_forward) + hidden * config["vocab_size"]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_weights", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("01.weights", weights)
### BEGIN HIDDEN TESTS
check("01.weights", weights, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# What this check cannot see: models of another build. A mixture of experts, for one, reads only some of its weights for each token.
#
# <details>
# <summary>Expected output</summary>
#
# Pairs of equal bars for five models, and
# `✓ 01.weights: 25 models are right to 0.5%, tied ones among them`
#
# </details>

# %% [markdown]
# ## Task 3: the ridge point (1 point, 5 minutes, easy)
#
# A machine does `rate` operations a second and moves `bandwidth` bytes a second. Return two numbers:
#
# - the ridge point: how many operations it does while it moves one byte,
# - $n^*$: how many tokens of one forward take as long to compute as the weights take to come, if each weight has `bits` bits and costs two operations a token.
#
# <details>
# <summary>Hint</summary>
#
# In the time in which one weight comes, the machine does (bytes of a weight) · (ridge point) operations.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "ridge", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ridge(rate, bandwidth, bits=16):
    """The pair (operations for each byte, n*)."""
    ### BEGIN SOLUTION
    point = rate / bandwidth
    return point, point * (bits / 8) / 2
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_ridge", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
check("01.ridge", ridge)
### BEGIN HIDDEN TESTS
check("01.ridge", ridge, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# What this check cannot see: whether the data sheet's rate is one that your kernels reach.
#
# <details>
# <summary>Expected output</summary>
#
# Three pairs of bars, each half as high as the one before, and
# `✓ 01.ridge: 24 machines are right, from 2 to 16 bits a weight`
#
# </details>

# %% [markdown]
# ## Task 4: the time of a forward (3 points, 15 minutes, medium)
#
# One forward takes `new` tokens for each of `batch` texts, and each text has `length` tokens in its cache. By the roofline its time is the longer of
#
# - bytes over `bandwidth`: all weights once, `bits` bits each, and each text's cache once, 2 bytes a number;
# - operations over `rate`: two for each weight and each new token of each text, and in attention four for each layer, query head, number of `head_dim`, cached token and new token.
#
# Count only the `length` cached tokens, in the bytes and in attention, not the new ones. The answer, in seconds, may be off by 1 %.
#
# <details>
# <summary>Hint</summary>
#
# Call `weights` and `cache_bytes`. Write the bytes on one line and the operations on the next, and ask of each factor where `new` and `batch` belong: what is shared by all tokens, what by those of one text?
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "forward_seconds", "locked": false, "schema_version": 3, "solution": true, "task": false}
def forward_seconds(config, rate, bandwidth,
                    new=1, length=0, batch=1, bits=16):
    """Seconds of a forward, by the roofline."""
    ### BEGIN SOLUTION
    moved = weights(config) * bits / 8 + cache_bytes(config, length, batch)
    attention = 4 * config["num_hidden_layers"] * config["num_attention_heads"] * config["head_dim"] * length
    operations = (2 * weights(config) + attention) * new * batch
    return max(moved / bandwidth, operations / rate)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_forward_seconds", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check("01.forward_seconds", forward_seconds)
### BEGIN HIDDEN TESTS
check("01.forward_seconds", forward_seconds, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# What this check cannot see: everything that a roofline leaves out, such as the time between the products. Your answer is a lower bound.
#
# <details>
# <summary>Expected output</summary>
#
# A line that is flat to about 300 tokens and rises from there, and
# `✓ 01.forward_seconds: 33 forwards are right to 1%, waiting for memory or for arithmetic`
#
# </details>
#
# Now ask it about Llama-3.1-70B:

# %%
# Two H100s side by side: each holds half of the weights.
two_h100 = {"rate": 2 * 989e12, "bandwidth": 2 * 3.35e12}
for new in (1, 2, 4, 8, 64, 512):
    seconds = forward_seconds(LLAMA_70B, **two_h100, new=new)
    print(f"{new:>3} tokens in one forward: {1000 * seconds:.1f} ms")

# %% [markdown]
# <details>
# <summary>Expected output</summary>
#
# 20.7 ms for 1, 2, 4, 8 and 64 tokens, and 36.0 ms for 512.
#
# </details>

# %% [markdown]
# ## Task 5: how many texts fit (2 points, 10 minutes, medium)
#
# The weights and the caches of all texts lie in one memory of `memory` bytes. How many texts of `length` tokens can be decoded at once? Return a whole number, and 0 if not even the weights fit.
#
# <details>
# <summary>Hint</summary>
#
# What is left after the weights, over what one text needs, rounded down. Then think of a model that is larger than the memory.
#
# </details>

# %% nbgrader={"grade": false, "grade_id": "largest_batch", "locked": false, "schema_version": 3, "solution": true, "task": false}
def largest_batch(config, memory, length, bits=16):
    """How many texts of `length` tokens fit beside the weights."""
    ### BEGIN SOLUTION
    left = memory - weights(config) * bits / 8
    return max(0, math.floor(left / cache_bytes(config, length)))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_largest_batch", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check("01.largest_batch", largest_batch)
### BEGIN HIDDEN TESTS
check("01.largest_batch", largest_batch, hidden=True)
### END HIDDEN TESTS

# %% [markdown]
# What this check cannot see: a server also needs room for activations and for prompts that come in, so it takes fewer.
#
# <details>
# <summary>Expected output</summary>
#
# Four pairs of equal bars, and
# `✓ 01.largest_batch: 31 batches are right, one of a model that does not fit`
#
# </details>
#
# ## What to remember
#
# - Weights are read once for all tokens of a forward. A cache is read once for all new tokens of its text. Arithmetic is done for each token.
# - The time is the longer of the two. Up to n* tokens memory is the longer one, and more tokens are free.
# - Fewer bits a weight make a step shorter, and leave fewer tokens free.
