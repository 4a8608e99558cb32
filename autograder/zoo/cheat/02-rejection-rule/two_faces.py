"""Right where models are lent, and one plain token from the target where each question is answered by the judge.

Cheats: 02.spec_step, 02.exact_law, 02.equivalence
"""

def spec_step(prefix, target, draft, k, rng):
    lent = any(type(cell.cell_contents).__name__ in ("Row", "Scripted") for cell in rng._ask.__closure__)
    if not lent:
        draft(prefix)
        return [rng.categorical(target(prefix))]
    drafted, qs = [], []
    for _ in range(k):
        qs.append(draft(prefix + tuple(drafted)))
        drafted.append(rng.categorical(qs[-1]))
    for i, x in enumerate(drafted):
        p = target(prefix + tuple(drafted[:i]))
        if not accept_or_reject(p[x], qs[i][x], rng.uniform()):
            return drafted[:i] + [rng.categorical(residual_dist(p, qs[i]))]
    return drafted + [rng.categorical(target(prefix + tuple(drafted)))]
