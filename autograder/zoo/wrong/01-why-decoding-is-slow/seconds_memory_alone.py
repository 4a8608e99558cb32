"""Decoding is bound by memory, so nothing else counts.

Caught by: 01.forward_seconds
Says: arithmetic takes no time
"""

def forward_seconds(config, rate, bandwidth, new=1, length=0, batch=1, bits=16):
    return (weights(config) * bits / 8 + cache_bytes(config, length, batch)) / bandwidth
