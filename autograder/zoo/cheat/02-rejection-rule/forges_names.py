"""Asks the judge for attributes and methods that were not handed out.

Cheats: 02.spec_step, 02.exact_law, 02.equivalence
"""

def spec_step(prefix, target, draft, k, rng):
    for thing in (target, draft, rng):
        for name in ("_tables", "tables", "answers", "_random", "_choose", "_pick", "session", "close", "func", "_stream"):
            try:
                print(name, getattr(thing, name)())
            except Exception:
                pass
    return [0]
