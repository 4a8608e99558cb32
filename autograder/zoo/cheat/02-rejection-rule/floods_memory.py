"""Takes all memory: lists, anonymous maps, shared maps, files in memory.

Cheats: 02.residual_dist
"""

import ctypes
import mmap
import os

kept = []
for make in (lambda: bytearray(2**28), lambda: mmap.mmap(-1, 2**28), lambda: os.memfd_create("x")):
    for _ in range(200):
        try:
            thing = make()
            if isinstance(thing, int):
                os.write(thing, b"x" * 2**24)
            elif isinstance(thing, mmap.mmap):
                thing.write(b"x" * 2**28)
            kept.append(thing)
        except (MemoryError, OSError, ValueError):
            break


def residual_dist(p, q):
    more = []
    while True:
        more.append(bytearray(2**26))
