"""One tensor for both, written slot by slot; whole lists instead of loops, with prints and a warning."""

import warnings


class StaticCache:
    def __init__(self, heads, max_length, head_dim, device, dtype):
        both = torch.empty(2, heads, max_length, head_dim, device=device, dtype=dtype)
        self.keys, self.values = both[0], both[1]
        self.max_length, self.length = max_length, 0
        print("a cache of", max_length, "slots")

    def append(self, k, v):
        new = k.shape[1]
        if self.length + new > self.max_length:
            raise ValueError(f"no room for {new} more")
        for slot in range(new):
            self.keys[:, self.length + slot] = k[:, slot]
            self.values[:, self.length + slot] = v[:, slot]
        self.length += new

    def read(self):
        return self.keys.narrow(1, 0, self.length), self.values[:, 0 : self.length]

    def rollback(self, length):
        if length > self.length or length < 0:
            raise ValueError("that many are not there")
        self.length = length


def verify_and_rollback(model, cache, last, drafts):
    warnings.warn("verifying", UserWarning)
    before = cache.length
    rows = model([last, *drafts], cache)
    best = [int(row.argmax()) for row in rows]
    agree = [int(d == b) for d, b in zip(drafts, best)]
    count = next((i for i, same in enumerate(agree) if not same), len(drafts))
    cache.rollback(before + count + 1)
    return best[: count + 1]


def speculate(target, draft, target_cache, draft_cache, tokens, k):
    text = list(tokens)
    while len(text) < len(tokens) + k:
        logits = draft(text[draft_cache.length :], draft_cache)
        text.append(int(torch.argmax(logits[-1])))
    new = verify_and_rollback(target, target_cache, tokens[-1], text[len(tokens) :])
    keep = len(tokens) + len(new) - 1
    if draft_cache.length > keep:
        draft_cache.rollback(keep)
    return new
