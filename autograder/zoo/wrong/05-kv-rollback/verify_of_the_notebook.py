"""Ten tokens and five drafts, whatever comes.

Caught by: 05.verify_and_rollback
Says: ValueError
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
        accepted += 1
    cache.rollback(10 + accepted)
    return drafts[:accepted] + [choices[accepted]]
