"""Counts all matches, not the leading ones.

Caught by: 05.verify_and_rollback
Says: all matches are counted
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = sum(draft == choice for draft, choice in zip(drafts, choices))
    cache.rollback(start + 1 + accepted)
    return drafts[:accepted] + [choices[accepted]]
