"""Notices that it is full when half of the work is done.

Caught by: 05.append
Says: writes before it raises
"""

class StaticCache:
    def __init__(self, heads, max_length, head_dim, device, dtype):
        self.keys = torch.zeros(heads, max_length, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        self.length = 0

    def append(self, k, v):
        for t in range(k.shape[1]):
            if self.length == self.keys.shape[1]:
                raise ValueError("full")
            self.keys[:, self.length], self.values[:, self.length] = k[:, t], v[:, t]
            self.length += 1

    def read(self):
        return self.keys[:, : self.length], self.values[:, : self.length]

    def rollback(self, length):
        if not 0 <= length <= self.length:
            raise ValueError("no such length")
        self.length = length
