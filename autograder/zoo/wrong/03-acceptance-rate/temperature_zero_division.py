"""T = 0 is divided by.

Caught by: 03.alpha_at
Says: T = 0 divides by zero
"""

def alpha_at(target_logits, draft_logits, target_temperature, draft_temperature):
    def softmax(z, T):
        w = [math.exp((x - max(z)) / T) for x in z]
        return [x / sum(w) for x in w]

    return acceptance_rate(softmax(target_logits, target_temperature), softmax(draft_logits, draft_temperature))
