"""Counts what was ever written, not what is in use.

Caught by: 05.rollback
Says: dropped slots cannot be used again
"""

class StaticCache:
    def __init__(self, heads, max_length, head_dim, device, dtype):
        self.keys = torch.zeros(heads, max_length, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        self.length = self.written = 0

    def append(self, k, v):
        end = self.length + k.shape[1]
        self.written += k.shape[1]
        if self.written > self.keys.shape[1]:
            raise ValueError("full")
        self.keys[:, self.length : end], self.values[:, self.length : end] = k, v
        self.length = end

    def read(self):
        return self.keys[:, : self.length], self.values[:, : self.length]

    def rollback(self, length):
        if not 0 <= length <= self.length:
            raise ValueError("no such length")
        self.length = length
