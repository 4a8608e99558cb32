"""How a process gives up everything: namespaces of its own, no rights, a filter for system calls, limits."""

from __future__ import annotations

import ctypes
import os
import resource
import struct

NEWNS, NEWPID, NEWIPC, NEWUSER = 0x20000, 0x20000000, 0x8000000, 0x10000000  # <linux/sched.h>
NOSUID, NODEV = 2, 4  # <linux/mount.h>
REFUSED = (
    "unshare", "setns", "mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "chroot", "ptrace",
    "process_vm_readv", "process_vm_writev", "pidfd_getfd", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd",
    "io_uring_setup", "memfd_create", "memfd_secret", "shmget", "msgget", "semget", "mq_open",
)  # fmt: skip
LIBC = ctypes.CDLL(None, use_errno=True)


def must(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def prepare() -> None:
    """Loads what `seclude` needs, once, before the first child."""
    import pyseccomp  # noqa: F401


def new_processes() -> None:
    """The next child is process 1 of a namespace of its own."""
    must(LIBC.unshare(NEWPID), "unshare")


def seclude(limits: dict) -> None:
    """Namespaces of its own, then an own user without any privilege."""
    must(LIBC.unshare(NEWNS | NEWIPC), "unshare")
    for place, options in (
        ("/proc", "size=4k,mode=555"), ("/dev/shm", "size=4k,mode=555"), ("/given", "size=4k,mode=555"),
        ("/tmp", f"size={limits['disk']},nr_inodes=1000,mode=1777"),
    ):  # fmt: skip
        must(LIBC.mount(b"tmpfs", place.encode(), b"tmpfs", NOSUID | NODEV, options.encode()), f"mount {place}")
    become(limits["uid"])
    if not limits["uid"]:  # already somebody without rights outside; the capabilities inside go here
        must(LIBC.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0] * 6)), "capset")
    os.environ.update(HOME="/tmp", TMPDIR="/tmp")
    refuse_system_calls()


def become(uid: int) -> None:
    """Another user, for ever; 0 stays who it is."""
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def refuse_system_calls() -> None:
    import pyseccomp as seccomp  # loaded by `prepare`, where /proc and the linker's cache can still be seen

    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    for name in REFUSED:
        if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) >= 0:
            rules.add_rule(seccomp.ERRNO(1), name)
    rules.add_rule(seccomp.ERRNO(38), "clone3")  # its flags lie in memory; the C library goes on with clone
    rules.add_rule(seccomp.ERRNO(1), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, NEWUSER, NEWUSER))
    rules.load()


def restrict(limits: dict, size: int) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, size + limits["memory"]), (resource.RLIMIT_FSIZE, limits["disk"]), (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CPU, limits["cpu_seconds"]), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_STACK, 2**26),
        (resource.RLIMIT_NPROC, limits["processes"] if limits["namespaces"] else resource.RLIM_INFINITY),
    ):  # fmt: skip
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard) if most != resource.RLIM_INFINITY else hard
        resource.setrlimit(kind, (most, most))
