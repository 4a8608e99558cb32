"""As if every weight had 16 bits.

Caught by: 01.ridge
Says: the bits are ignored
"""

def ridge(rate, bandwidth, bits=16):
    return rate / bandwidth, rate / bandwidth
