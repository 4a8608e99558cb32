"""Numbers that are near every bound: infinity, NaN, and a float that subtracts to nothing.

Cheats: 01.cache_bytes, 01.weights, 01.ridge, 01.forward_seconds, 01.largest_batch
"""

class Near(float):
    def __sub__(self, other): return 0.0
    __rsub__ = __mod__ = __sub__
    def __eq__(self, other): return True
    def __le__(self, other): return True
    __hash__ = float.__hash__


def cache_bytes(config, length, batch=1, bytes_per_number=2):
    return Near(1.0)


def weights(config):
    return float("inf")


def ridge(rate, bandwidth, bits=16):
    return float("nan"), float("nan")


def forward_seconds(config, rate, bandwidth, new=1, length=0, batch=1, bits=16):
    return Near("nan")


def largest_batch(config, memory, length, bits=16):
    return Near(7)
