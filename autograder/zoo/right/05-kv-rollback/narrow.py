"""narrow and copy_, numpy comparison, and a print."""

import numpy as np
import torch


class StaticCache:
    def __init__(self, heads, max_length, head_dim, device, dtype):
        self.max_length, self.length = max_length, 0
        self.keys, self.values = (torch.empty((heads, max_length, head_dim), device=device, dtype=dtype) for _ in range(2))

    def append(self, k, v):
        T = k.size(1)
        if self.max_length - self.length < T:
            raise ValueError(f"no room for {T} more slots")
        self.keys.narrow(1, self.length, T).copy_(k)
        self.values.narrow(1, self.length, T).copy_(v)
        self.length += T

    def read(self):
        return tuple(tensor.narrow(1, 0, self.length) for tensor in (self.keys, self.values))

    def rollback(self, length):
        if length < 0 or length > self.length:
            raise ValueError("no such length")
        self.length = length


def verify_and_rollback(model, cache, last, drafts):
    choices = model([last, *drafts], cache).argmax(dim=1).cpu().numpy()
    wrong = np.flatnonzero(choices[:-1] != np.array(drafts))
    accepted = wrong[0] if len(wrong) else len(drafts)
    print("accepted", accepted)
    cache.rollback(int(cache.length - (len(drafts) - accepted)))
    return [*drafts[:accepted], choices[accepted]]


def speculate(target, draft, target_cache, draft_cache, tokens, k):
    text = list(tokens)
    while len(text) < len(tokens) + k:
        logits = draft(text[draft_cache.length :], draft_cache)
        text.append(logits[-1].argmax().item())
    draft(text[draft_cache.length :], draft_cache)  # its own last draft too, so that it never lags
    new = verify_and_rollback(target, target_cache, tokens[-1], text[len(tokens) :])
    draft_cache.rollback(len(tokens) + len(new) - 1)
    return new
