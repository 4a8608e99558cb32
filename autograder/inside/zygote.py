"""A warm Python that forks a child for each submission: torch is imported once, and every child begins from the same clean memory.

    python -I zygote.py CONTROL SITE JSON

CONTROL is the number of a socket to the judge, with a line of JSON for each message: it sends {"open": n} with the child's own socket,
{"kill": n} or {"cpu": n}, and gets {"opened": n}, {"cpu": n, "seconds": s}, or {"ended": n, "status": s} when a child is gone (s as
`os.waitstatus_to_exitcode` has it). SITE is where libraries lie, JSON the limits (`sandbox.Limits`). Only this code has run in this
process; a student's never does.

A child gets process, mount and IPC namespaces of its own: it is process 1 of its namespace, so that everything it ever started dies
with it; its /tmp is empty and small, its /proc is empty. Then it gives up every privilege, and a filter refuses the system calls by
which it could get another namespace, another process's memory or memory that no limit counts.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import types

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.path.append(sys.argv[2])

import agent  # noqa: E402  (what lies beside this file)
import torch  # noqa: E402

if json.loads(sys.argv[3])["namespaces"]:
    import pyseccomp as seccomp

NEWNS, NEWPID, NEWIPC, NEWUSER = 0x20000, 0x20000000, 0x8000000, 0x10000000
NOSUID, NODEV, NOEXEC, RDONLY = 2, 4, 8, 1
REFUSED = (
    "unshare", "setns", "mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "chroot", "ptrace",
    "process_vm_readv", "process_vm_writev", "pidfd_getfd", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd",
    "io_uring_setup", "memfd_create", "memfd_secret", "shmget", "msgget", "semget", "mq_open",
)  # fmt: skip
LIBC = ctypes.CDLL(None, use_errno=True)


def must(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


class Zygote:
    def __init__(self, control: socket.socket, limits: dict):
        self.control, self.limits, self.children = control, limits, {}  # {pid: the judge's number}
        self._tell({"ready": True})
        self.own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY) if limits["namespaces"] else None
        self.size = address_space()

    def serve(self) -> None:
        """Until the judge hangs up."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        watch = selectors.DefaultSelector()
        watch.register(self.control, selectors.EVENT_READ)
        watch.register(reading, selectors.EVENT_READ)
        while True:
            for key, _ in watch.select():
                if key.fd == reading:
                    os.read(reading, 512)
                    self._reap()
                elif not self._command():
                    return

    def _command(self) -> bool:
        data, passed, _, _ = socket.recv_fds(self.control, 4096, 1)
        if not data:
            return False
        for message in map(json.loads, data.splitlines()):
            if "open" in message:
                self._open(message["open"], passed[0])
            pids = {number: pid for pid, number in self.children.items()}
            if message.get("kill") in pids:
                kill(pids[message["kill"]], self.limits["namespaces"])
            if "cpu" in message:
                self._tell({"cpu": message["cpu"], "seconds": cpu_seconds(pids.get(message["cpu"], 0), self.limits["namespaces"])})
        return True

    def _open(self, number: int, end: int) -> None:
        if self.own_pids is not None:
            must(LIBC.unshare(NEWPID), "unshare")
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                self._become_child(end)
                status = 0
            finally:
                os._exit(status)
        if self.own_pids is not None:
            must(LIBC.setns(self.own_pids, NEWPID), "setns")
        os.close(end)
        self.children[pid] = number
        self._tell({"opened": number})

    def _reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self.children:
                if not self.limits["namespaces"]:
                    kill(pid, False)  # what is left of its process group
                self._tell({"ended": self.children.pop(pid), "status": os.waitstatus_to_exitcode(status)})

    def _tell(self, message: dict) -> None:
        self.control.sendall(json.dumps(message).encode() + b"\n")

    def _become_child(self, end: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        limits = self.limits
        if limits["namespaces"]:
            seclude(limits)
        else:
            become(limits["uid"])
        nothing = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(nothing, fd)
        kept = os.dup2(end, 3)
        os.closerange(4, 4096)
        restrict(limits, self.size)
        agent.main(socket.socket(fileno=kept))


def kill(pid: int, namespaces: bool) -> None:
    try:
        os.kill(pid, signal.SIGKILL) if namespaces else os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def cpu_seconds(pid: int, namespaces: bool) -> float:
    """Processor time of a child with all that it has started; 0 if it is gone or there is no /proc."""
    ours = {"1", str(os.getpid())}  # beside these two everything in the sandbox is the child's
    pids = [name for name in os.listdir("/proc") if name.isdigit() and name not in ours] if namespaces else [str(pid)]
    ticks = 0
    for name in pids:
        try:
            with open(f"/proc/{name}/stat") as file:
                ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue  # gone meanwhile
    return ticks / os.sysconf("SC_CLK_TCK")


def seclude(limits: dict) -> None:
    """Namespaces of its own, then an own user without any privilege."""
    must(LIBC.unshare(NEWNS | NEWIPC), "unshare")
    for place, options in (
        ("/proc", "size=4k,mode=555"), ("/dev/shm", "size=4k,mode=555"), ("/tmp", f"size={limits['disk']},nr_inodes=1000,mode=1777"),
    ):  # fmt: skip
        must(LIBC.mount(b"tmpfs", place.encode(), b"tmpfs", NOSUID | NODEV, options.encode()), f"mount {place}")
    os.chdir("/tmp")
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


def address_space() -> int:
    """Bytes of this process's address space, libraries included."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 2**33  # no /proc, as on macOS


def warm() -> None:
    """A first product of matrices, so that no child pays for it."""
    torch.set_num_threads(1)
    torch.ones(8, 8, dtype=torch.float64) @ torch.ones(8, 8, dtype=torch.float64)


def give(modules: dict[str, str]) -> None:
    """What the exercises import of the course: the modules that are handed out, and a `check` that leaves it to the judge."""
    for name in ("autograder", "autograder.checks"):
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = []
    sys.modules["autograder.checks"].check = lambda *_args, **_kwargs: None
    for name, path in modules.items():
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "__main__":
    warm()
    give(json.loads(sys.argv[3])["given"])
    Zygote(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[3])).serve()
