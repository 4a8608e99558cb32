"""One wrong draft rejects all.

Caught by: 05.verify_and_rollback
Says: accepts all drafts or none
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = len(drafts) if drafts == choices[:-1] else 0
    cache.rollback(start + 1 + accepted)
    return drafts[:accepted] + [choices[accepted]]
