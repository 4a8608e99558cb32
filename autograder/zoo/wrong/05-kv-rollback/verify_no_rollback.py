"""The rejected drafts stay in the cache.

Caught by: 05.verify_and_rollback
Says: no rollback
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    pass
    return drafts[:accepted] + [choices[accepted]]
