"""On a tie the last one wins.

Caught by: 03.alpha_at
Says: a tie at T = 0 is not the lowest id's
"""

def alpha_at(target_logits, draft_logits, target_temperature, draft_temperature):
    def softmax(z, T):
        if T == 0:
            return [float(i == max(range(len(z)), key=lambda j: (z[j], j))) for i in range(len(z))]
        w = [math.exp((x - max(z)) / T) for x in z]
        return [x / sum(w) for x in w]

    return acceptance_rate(softmax(target_logits, target_temperature), softmax(draft_logits, draft_temperature))
