"""Forgets that `last` was fed.

Caught by: 05.verify_and_rollback
Says: off by one: an accepted draft
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    cache.rollback(start + accepted)
    return drafts[:accepted] + [choices[accepted]]
