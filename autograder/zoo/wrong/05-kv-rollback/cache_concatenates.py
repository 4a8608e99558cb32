"""Grows by concatenation: a new tensor at every step.

Caught by: 05.append
Says: append allocates new tensors
"""

class StaticCache:
    def __init__(self, heads, max_length, head_dim, device, dtype):
        self.keys = torch.zeros(heads, max_length, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        self.length = 0

    def append(self, k, v):
        if self.length + k.shape[1] > self.keys.shape[1]:
            raise ValueError("full")
        free = torch.zeros_like(self.keys[:, self.length + k.shape[1] :])
        self.keys = torch.cat([self.keys[:, : self.length], k, free], dim=1)
        self.values = torch.cat([self.values[:, : self.length], v, free], dim=1)
        self.length += k.shape[1]

    def read(self):
        return self.keys[:, : self.length], self.values[:, : self.length]

    def rollback(self, length):
        if not 0 <= length <= self.length:
            raise ValueError("no such length")
        self.length = length
