"""Tensors with gradients, written under torch.no_grad(): nothing outside may write into such tensors either."""

class StaticCache:
    @torch.no_grad()
    def __init__(self, heads, max_length, head_dim, device, dtype):
        self.keys = torch.zeros(heads, max_length, head_dim, device=device, dtype=dtype, requires_grad=True)
        self.values = torch.zeros_like(self.keys, requires_grad=True)
        self.length = 0

    @torch.no_grad()
    def append(self, k, v):
        end = self.length + k.shape[1]
        if end > self.keys.shape[1]:
            raise ValueError("full")
        self.keys[:, self.length : end] = k
        self.values[:, self.length : end] = v
        self.length = end

    def read(self):
        return self.keys[:, : self.length], self.values[:, : self.length]

    def rollback(self, length):
        if not 0 <= length <= self.length:
            raise ValueError("no such length")
        self.length = length
