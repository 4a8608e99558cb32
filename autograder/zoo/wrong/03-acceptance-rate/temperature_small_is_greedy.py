"""A small temperature is taken for 0.

Caught by: 03.alpha_at
Says: wrong for large logits or a small temperature
"""

def alpha_at(target_logits, draft_logits, target_temperature, draft_temperature):
    def softmax(z, T):
        if T < 0.1:
            return [float(i == z.index(max(z))) for i in range(len(z))]
        w = [math.exp((x - max(z)) / T) for x in z]
        return [x / sum(w) for x in w]

    return acceptance_rate(softmax(target_logits, target_temperature), softmax(draft_logits, draft_temperature))
