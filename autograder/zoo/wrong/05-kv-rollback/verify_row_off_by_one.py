"""Compares draft i with the row after it.

Caught by: 05.verify_and_rollback
Says: compares with the wrong row
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and accepted + 1 < len(choices) and drafts[accepted] == choices[accepted + 1]:
        accepted += 1
    cache.rollback(start + 1 + accepted)
    return drafts[:accepted] + [choices[accepted]]
