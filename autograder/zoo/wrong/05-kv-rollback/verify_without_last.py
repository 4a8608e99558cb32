"""Feeds the drafts alone.

Caught by: 05.verify_and_rollback
Says: the last committed token is not in the forward
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model(drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and accepted + 1 < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    cache.rollback(start + 1 + accepted)
    return drafts[:accepted] + [choices[accepted]]
