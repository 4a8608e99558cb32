"""Tries to get other namespaces, mounts, a root directory, and users.

Cheats: 04.expected_tokens
"""

import ctypes
import os

libc, got = ctypes.CDLL(None), []
for flags in (0x10000000, 0x20000, 0x40000000, 0x10000000 | 0x20000):
    if libc.unshare(flags) == 0:
        got.append(flags)
if libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None) == 0:
    got.append("mount")
for action in (lambda: os.setuid(0), lambda: os.chroot("/tmp"), lambda: os.setgroups([0]), lambda: os.mknod("/tmp/disk", 0o60600, 0x800)):
    try:
        action()
        got.append("privilege")
    except OSError:
        pass
print("BROKE OUT", got) if got else print("nothing")


def expected_tokens(alpha, k):
    return 1.0 + alpha * k
