"""The whole memory is for caches.

Caught by: 01.largest_batch
Says: the weights take no memory
"""

def largest_batch(config, memory, length, bits=16):
    return math.floor(memory / cache_bytes(config, length))
