"""The ridge point alone.

Caught by: 01.ridge
Says: did not return a pair
"""

def ridge(rate, bandwidth, bits=16):
    return rate / bandwidth
