"""Counts the correction, which has not been fed.

Caught by: 05.verify_and_rollback
Says: off by one: a rejected draft
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    cache.rollback(min(cache.length, start + 2 + accepted))
    return drafts[:accepted] + [choices[accepted]]
