"""The length is counted in the class.

Caught by: 05.append
Says: two caches share their length
"""

class StaticCache:
    length = 0

    def __init__(self, heads, max_length, head_dim, device, dtype):
        self.keys = torch.zeros(heads, max_length, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)

    def append(self, k, v):
        end = self.length + k.shape[1]
        if end > self.keys.shape[1]:
            raise ValueError("full")
        self.keys[:, self.length : end], self.values[:, self.length : end] = k, v
        StaticCache.length = end

    def read(self):
        return self.keys[:, : self.length], self.values[:, : self.length]

    def rollback(self, length):
        if not 0 <= length <= self.length:
            raise ValueError("no such length")
        StaticCache.length = length
