"""Bandwidth over rate.

Caught by: 01.ridge
Says: upside down
"""

def ridge(rate, bandwidth, bits=16):
    return bandwidth / rate, bandwidth / rate * bits / 16
