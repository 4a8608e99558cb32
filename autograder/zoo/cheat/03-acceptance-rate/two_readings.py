"""Drafts that are other ones each time they are read: first the one whose KL is good, then the one whose α is bad.

Cheats: 03.better_kl_worse_alpha
"""

class Draft(list):
    def __init__(self, *readings):
        super().__init__(readings[0])
        self.readings = list(readings)

    def __iter__(self):
        return iter(self.readings.pop(0) if len(self.readings) > 1 else self.readings[0])

    def __getitem__(self, i):
        return self.readings[-1][i]

    def tolist(self):
        return list(self)


def better_kl_worse_alpha(p):
    even = [1 / len(p)] * len(p)
    return Draft(p, p, even), Draft(even, even, p)
