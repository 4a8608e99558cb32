"""One text more than fits.

Caught by: 01.largest_batch
Says: rounded up
"""

def largest_batch(config, memory, length, bits=16):
    return max(0, math.ceil((memory - weights(config) * bits / 8) / cache_bytes(config, length)))
