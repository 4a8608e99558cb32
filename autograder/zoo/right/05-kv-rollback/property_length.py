"""The length is a property over a counter; a warning when the cache runs full; recursion over the drafts."""

import warnings

import torch


class StaticCache:
    def __init__(self, heads, max_length, head_dim, device, dtype):
        both = torch.zeros(2, heads, max_length, head_dim, device=device, dtype=dtype)
        self.keys, self.values = both[0], both[1]
        self._used = 0

    @property
    def length(self):
        return self._used

    def append(self, k, v):
        new = self._used + k.shape[-2]
        if new > self.keys.shape[-2]:
            raise ValueError("the cache is full")
        if new == self.keys.shape[-2]:
            warnings.warn("that was the last slot")
        for tensor, values in ((self.keys, k), (self.values, v)):
            tensor[..., self._used : new, :] = values
        self._used = new

    def read(self):
        return self.keys[..., : self._used, :], self.values[..., : self._used, :]

    def rollback(self, length):
        if length not in range(self._used + 1):
            raise ValueError("the length must be one that the cache has had")
        self._used = length


def verify_and_rollback(model, cache, last, drafts):
    rows = model([last] + drafts, cache)

    def emitted(i):
        choice = int(rows[i].argmax())
        return [choice] + emitted(i + 1) if i < len(drafts) and choice == drafts[i] else [choice]

    result = emitted(0)
    cache.rollback(cache.length - len(drafts) + len(result) - 1)
    return result


def speculate(target, draft, target_cache, draft_cache, tokens, k):
    drafts = []
    for step in range(k):
        new = tokens[draft_cache.length :] if step == 0 else drafts[-1:]
        drafts.append(int(torch.argmax(draft(new, draft_cache)[-1])))
    emitted = verify_and_rollback(target, target_cache, tokens[-1], drafts)
    keep = len(tokens) + len(emitted) - 1
    if keep < draft_cache.length:
        draft_cache.rollback(keep)
    return emitted
