"""As if at least one token were always free.

Caught by: 01.ridge
Says: n* is kept from falling below 1
"""

def ridge(rate, bandwidth, bits=16):
    return rate / bandwidth, max(1, rate / bandwidth * bits / 16)
