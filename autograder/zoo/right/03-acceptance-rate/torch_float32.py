"""Tensors in single precision, for all that is returned."""

import torch


def acceptance_rate(p, q):
    return torch.minimum(torch.tensor(p), torch.tensor(q)).sum()


def alpha_at(target_logits, draft_logits, target_temperature, draft_temperature):
    def probabilities(logits, temperature):
        z = torch.tensor(logits)
        if temperature == 0:
            return torch.nn.functional.one_hot(z.argmax(), len(z)).float()
        return ((z - z.max()) / temperature).softmax(-1)

    p, q = probabilities(target_logits, target_temperature), probabilities(draft_logits, draft_temperature)
    return torch.minimum(p, q).sum()


def alpha_from_rounds(rounds):
    drafted, accepted = torch.tensor(rounds, dtype=torch.float32).unbind(-1)
    n = torch.minimum(accepted + 1, drafted).sum()
    alpha = accepted.sum() / n
    return torch.stack([alpha, 1.96 * (alpha * (1 - alpha) / n).sqrt()])


def error_by_rounds(rounds):
    drafted, accepted = torch.tensor(rounds, dtype=torch.float32).unbind(-1)
    n = torch.minimum(accepted + 1, drafted)
    surplus = accepted - accepted.sum() / n.sum() * n
    return 1.96 * surplus.square().sum().sqrt() / n.sum()


def better_kl_worse_alpha(p):
    p = torch.tensor(p)
    rare = torch.nn.functional.one_hot(p.argmin(), len(p))
    second = torch.where(rare == 1, 1e-20, p)
    share = 2 * p.min() + 0.02
    return (1 - share) * p + share * rare, second / second.sum()
