"""Feeds the draft the whole text at every step.

Caught by: 05.speculate
Says: the draft was fed
"""

def speculate(target, draft, target_cache, draft_cache, tokens, k):
    drafts = []
    for _ in range(k):
        draft_cache.rollback(0)
        lacking = tokens + drafts
        drafts.append(int(draft(lacking, draft_cache)[-1].argmax()))
    emitted = verify_and_rollback(target, target_cache, tokens[-1], drafts)
    draft_cache.rollback(min(draft_cache.length, len(tokens) + len(emitted) - 1))
    return emitted
