"""The loop goes on after the first rejection.

Caught by: 05.verify_and_rollback
Says: up to the last mismatch
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = len(drafts)
    for i, draft in enumerate(drafts):
        if draft != choices[i]:
            accepted = i
    cache.rollback(start + 1 + accepted)
    return drafts[:accepted] + [choices[accepted]]
