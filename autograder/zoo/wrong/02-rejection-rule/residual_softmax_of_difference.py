"""Softmax of p - q.

Caught by: 02.residual_dist
Says: softmax of p - q
"""

def residual_dist(p, q):
    return torch.softmax(torch.tensor(p) - torch.tensor(q), dim=-1)
