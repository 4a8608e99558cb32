"""Rolls back the target's cache only.

Caught by: 05.speculate
Says: draft's cache
"""

def speculate(target, draft, target_cache, draft_cache, tokens, k):
    drafts = []
    for _ in range(k):
        lacking = (tokens + drafts)[draft_cache.length :]
        drafts.append(int(draft(lacking, draft_cache)[-1].argmax()))
    emitted = verify_and_rollback(target, target_cache, tokens[-1], drafts)
    
    return emitted
