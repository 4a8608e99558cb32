"""Passes the number of rejected drafts.

Caught by: 05.verify_and_rollback
Says: the number of dropped slots
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    cache.rollback(len(drafts) - accepted)
    return drafts[:accepted] + [choices[accepted]]
