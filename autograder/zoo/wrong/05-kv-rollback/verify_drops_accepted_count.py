"""Drops as many slots as drafts were accepted.

Caught by: 05.verify_and_rollback
Says: as many slots are dropped as drafts were accepted
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    cache.rollback(cache.length - accepted)
    return drafts[:accepted] + [choices[accepted]]
