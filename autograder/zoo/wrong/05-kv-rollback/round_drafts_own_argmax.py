"""Compares the drafts with the draft's own argmax, which they are.

Caught by: 05.speculate
Says: the draft's own argmax
"""

def speculate(target, draft, target_cache, draft_cache, tokens, k):
    drafts = []
    for _ in range(k):
        lacking = (tokens + drafts)[draft_cache.length :]
        drafts.append(int(draft(lacking, draft_cache)[-1].argmax()))
    choices = target(tokens[-1:] + drafts, target_cache).argmax(-1).tolist()
    emitted = drafts + choices[-1:]
    target_cache.rollback(len(tokens) + k)
    draft_cache.rollback(min(draft_cache.length, len(tokens) + len(emitted) - 1))
    return emitted
