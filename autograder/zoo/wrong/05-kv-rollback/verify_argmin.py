"""The first False by argmin, which is 0 where there is none.

Caught by: 05.verify_and_rollback
Says: accepts nothing when every draft is right
"""

def verify_and_rollback(model, cache, last, drafts):
    start = cache.length
    choices = model([last] + drafts, cache).argmax(-1).tolist()
    accepted = int(torch.tensor([draft == choice for draft, choice in zip(drafts, choices)]).int().argmin())
    cache.rollback(start + 1 + accepted)
    return drafts[:accepted] + [choices[accepted]]
