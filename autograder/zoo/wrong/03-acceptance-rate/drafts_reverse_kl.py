"""KL(q‖p), by a search.

Caught by: 03.better_kl_worse_alpha
Says: the wrong way round
"""

def better_kl_worse_alpha(p):
    p, rng = np.array(p), np.random.default_rng(1)
    def kl(a, b):
        return (a * np.log(a / b)).sum()
    while True:
        first, second = (rng.dirichlet(np.ones(len(p))) * 0.999 + 0.001 / len(p) for _ in range(2))
        worse = np.minimum(p, first).sum() + 0.02 < np.minimum(p, second).sum()
        if worse and kl(first, p) + 0.02 < kl(second, p) and kl(p, first) > kl(p, second):
            return first.tolist(), second.tolist()
