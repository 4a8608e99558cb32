"""Ends the process by an error in memory.

Cheats: 02.accept_or_reject
"""

import ctypes


def accept_or_reject(p_prob, q_prob, u):
    ctypes.string_at(0)
