"""The argmax of the first row that was fed.

Caught by: 05.speculate
Says: the drafts are not what the draft puts after the text
"""

def speculate(target, draft, target_cache, draft_cache, tokens, k):
    drafts = []
    for _ in range(k):
        lacking = (tokens + drafts)[draft_cache.length :]
        drafts.append(int(draft(lacking, draft_cache)[0].argmax()))
    emitted = verify_and_rollback(target, target_cache, tokens[-1], drafts)
    draft_cache.rollback(min(draft_cache.length, len(tokens) + len(emitted) - 1))
    return emitted
