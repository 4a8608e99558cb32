"""Recursion for the sum; the speedup has one top, so climb until it falls."""

def expected_tokens(alpha, k):
    return 1 if k == 0 else 1 + alpha * expected_tokens(alpha, k - 1)


def speedup(alpha, k, c):
    return expected_tokens(alpha, k) / (c * k + 1)


def optimal_k(alpha, c, k_max=64):
    k = 0
    while k < k_max and speedup(alpha, k + 1, c) > speedup(alpha, k, c):
        k += 1
    return [k, speedup(alpha, k, c)]
