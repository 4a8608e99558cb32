"""Tensors of the class, for all caches of one form.

Caught by: 05.append
Says: two caches share their tensors
"""

class StaticCache:
    buffers = {}

    def __init__(self, heads, max_length, head_dim, device, dtype):
        form = heads, max_length, head_dim, dtype
        if form not in self.buffers:
            self.buffers[form] = torch.zeros(2, heads, max_length, head_dim, device=device, dtype=dtype)
        self.keys, self.values = self.buffers[form]
        self.length = 0

    def append(self, k, v):
        end = self.length + k.shape[1]
        if end > self.keys.shape[1]:
            raise ValueError("full")
        self.keys[:, self.length : end], self.values[:, self.length : end] = k, v
        self.length = end

    def read(self):
        return self.keys[:, : self.length], self.values[:, : self.length]

    def rollback(self, length):
        if not 0 <= length <= self.length:
            raise ValueError("no such length")
        self.length = length
