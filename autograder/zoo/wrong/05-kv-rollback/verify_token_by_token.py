"""One target forward per draft.

Caught by: 05.verify_and_rollback
Says: target forwards instead of one
"""

def verify_and_rollback(model, cache, last, drafts):
    emitted = []
    for draft in [*drafts, None]:
        choice = int(model([last], cache)[-1].argmax())
        emitted.append(choice)
        if choice != draft:
            break
        last = choice
    return emitted
