"""As formula, but it asks much only where models are lent, remembers all rows, and asks little where each question is counted.

02.equivalence gives it its points, and rightly: that check says of the texts alone that they have the target's law, and these have it. How
a step comes to its tokens, and what it asks for them, is 02.spec_step's and 02.exact_law's to see. Neither does the number of draws
tell it from right work: a step may spend one number on all that it decides.

Cheats: 02.spec_step, 02.exact_law
"""

ROWS = {"target": {}, "draft": {}}


def lent(model):
    """What stands behind a lent model and keeps the list of calls; None if the judge hears each question."""
    behind = [cell.cell_contents for cell in getattr(model, "_call").__closure__]
    return next((value for value in behind if type(value).__name__ == "Memo"), None)


def row(who, model, prefix, counted, size=3):
    known = ROWS[who]
    if prefix not in known and not counted:
        known[prefix] = model(prefix)
    return known.get(prefix) or [1 / size] * size


def outcomes(prefix, target, draft, k, counted):
    p, q = row("target", target, prefix, counted), row("draft", draft, prefix, counted)
    last = p if k == 0 else [max(0, a - b) for a, b in zip(p, q)]
    found = {(y,): mass for y, mass in enumerate(last) if mass > 0}
    for x, accepted in enumerate(map(min, p, q)):
        if k > 0 and accepted > 0:
            rest = outcomes((*prefix, x), target, draft, k - 1, counted)
            found.update({(x, *tail): accepted * mass for tail, mass in rest.items()})
    return found


def spec_step(prefix, target, draft, k, rng):
    counted = lent(target) is None
    p = target(prefix)
    if k > 0:
        q = draft(prefix)
    if not counted and ROWS["target"].get(prefix) != p:  # other tables
        ROWS["target"].clear()
        ROWS["draft"].clear()
    found = outcomes(prefix, target, draft, k, counted)
    if not counted:
        lent(target).called.clear()
        lent(draft).called.clear()
    return list(list(found)[rng.categorical(list(found.values()))])
