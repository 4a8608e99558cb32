"""Rolls back to the text as it was.

Caught by: 05.verify_and_rollback
Says: rollback to the prefix
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    cache.rollback(start + 1)
    return drafts[:accepted] + [choices[accepted]]
