"""Imports the check's own formulas and answers with them.

Cheats: 01.cache_bytes, 01.weights, 01.forward_seconds
"""

import importlib


def formulas():
    return importlib.import_module("autograder.checks.01_why_decoding_is_slow")


def cache_bytes(config, length, batch=1, bytes_per_number=2):
    return formulas().cache_of(config, length, batch, bytes_per_number)


def weights(config):
    return formulas().weights_of(config)


def forward_seconds(config, rate, bandwidth, new=1, length=0, batch=1, bits=16):
    return formulas().seconds_of(config, rate, bandwidth, new, length, batch, bits)
