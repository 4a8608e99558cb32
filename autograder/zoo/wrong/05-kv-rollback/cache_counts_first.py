"""Counts the slots before it writes them.

Caught by: 05.append
Says: length is raised before the slots are written
"""

class StaticCache:
    def __init__(self, heads, max_length, head_dim, device, dtype):
        self.keys = torch.zeros(heads, max_length, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        self.length = 0

    def append(self, k, v):
        if self.length + k.shape[1] > self.keys.shape[1]:
            raise ValueError("full")
        self.length += k.shape[1]
        end = self.length + k.shape[1]
        self.keys[:, self.length : end], self.values[:, self.length : end] = k, v

    def read(self):
        return self.keys[:, : self.length], self.values[:, : self.length]

    def rollback(self, length):
        if not 0 <= length <= self.length:
            raise ValueError("no such length")
        self.length = length
