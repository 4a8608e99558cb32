"""The largest logit is not subtracted.

Caught by: 03.alpha_at
Says: the exponential of a large logit overflows
"""

def alpha_at(target_logits, draft_logits, target_temperature, draft_temperature):
    def softmax(z, T):
        if T == 0:
            return [float(i == z.index(max(z))) for i in range(len(z))]
        w = [math.exp(x / T) for x in z]
        return [x / sum(w) for x in w]

    return acceptance_rate(softmax(target_logits, target_temperature), softmax(draft_logits, draft_temperature))
