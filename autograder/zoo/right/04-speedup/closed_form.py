"""The closed form, with its limit."""

def expected_tokens(alpha, k):
    if alpha == 1:
        return k + 1
    return (1 - alpha ** (k + 1)) / (1 - alpha)


def speedup(alpha, k, c):
    return expected_tokens(alpha, k) / (1 + c * k)


def optimal_k(alpha, c, k_max=64):
    best, best_speed = 0, 1.0
    for k in range(1, k_max + 1):
        if speedup(alpha, k, c) > best_speed + 1e-13:
            best, best_speed = k, speedup(alpha, k, c)
    return best, best_speed
