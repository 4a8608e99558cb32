"""p - q is shifted up to 0 instead of clamped.

Caught by: 02.residual_dist
Says: shifts p - q up to 0
"""

def residual_dist(p, q):
    differences = [a - b for a, b in zip(p, q)]
    weights = [d - min(differences) for d in differences]
    total = sum(weights)
    return [w / total for w in weights] if total else list(p)
