"""The correction is the choice after the rejected draft.

Caught by: 05.verify_and_rollback
Says: the choice after the rejected draft
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    cache.rollback(start + 1 + accepted)
    return drafts[:accepted] + [choices[min(accepted + 1, len(drafts))]]
