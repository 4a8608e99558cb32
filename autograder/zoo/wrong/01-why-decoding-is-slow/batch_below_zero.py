"""No thought for a model that does not fit.

Caught by: 01.largest_batch
Says: wrong at a limit
"""

def largest_batch(config, memory, length, bits=16):
    return math.floor((memory - weights(config) * bits / 8) / cache_bytes(config, length))
