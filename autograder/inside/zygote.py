"""A warm Python that forks a child for each submission: torch, if asked for, is imported once, and every child begins from the same
clean memory.

    python -I zygote.py CONTROL SITE JSON

CONTROL is the number of a socket to the judge, with a line of JSON for each message: it sends {"open": n} with the child's own socket,
{"kill": n} or {"cpu": n}, and gets {"opened": n}, {"cpu": n, "seconds": s}, or {"ended": n, "status": s} when a child is gone (its exit
status). SITE is where libraries lie, JSON the limits (`sandbox.Limits`). Only this code has run in this
process; a student's never does.

A child gets process, mount and IPC namespaces of its own: it is process 1 of its namespace, so that everything it ever started dies
with it; its /tmp is empty and small, its /proc is empty. Then it gives up every privilege, and a filter refuses the system calls by
which it could get another namespace, another process's memory or memory that no limit counts.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import selectors
import signal
import socket
import sys
import types
from typing import NoReturn

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.path.append(sys.argv[2])

import responder  # noqa: E402  (what lies beside this file)
import seclusion  # noqa: E402


class Zygote:
    def __init__(self, control: socket.socket, limits: dict):
        self.control, self.limits = control, limits
        self.children: dict[int, tuple[int, int]] = {}  # {pid to wait for: (the judge's number, pid to kill)}
        if limits["namespaces"]:
            seclusion.prepare()
        self.size = address_space()
        self._tell({"ready": True})

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
            pids = dict(self.children.values())
            if message.get("kill") in pids:
                kill(pids[message["kill"]], self.limits["namespaces"])
            if "cpu" in message:
                self._tell({"cpu": message["cpu"], "seconds": cpu_seconds(pids.get(message["cpu"], 0), self.limits["namespaces"])})
        return True

    def _open(self, number: int, end: int) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._run(end, writing)
        os.close(end)
        os.close(writing)
        with open(reading) as file:
            inner = file.read()
        self.children[pid] = number, int(inner or pid)
        self._tell({"opened": number})

    def _run(self, end: int, writing: int) -> NoReturn:
        """In a child of the zygote's: becomes the submission's process or, with namespaces, its parent, which only waits for it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = 70
        try:
            if self.limits["namespaces"]:
                seclusion.new_processes()
                inner = os.fork()
                if inner:
                    os.write(writing, str(inner).encode())
                    os.close(writing)
                    os.close(end)
                    status = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) % 256  # 247 for -9
                    return
            os.close(writing)
            self._become_child(end)
            status = 0
        finally:
            os._exit(status)

    def _reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self.children:
                if not self.limits["namespaces"]:
                    kill(pid, False)  # what is left of its process group
                self._tell({"ended": self.children.pop(pid)[0], "status": os.waitstatus_to_exitcode(status)})

    def _tell(self, message: dict) -> None:
        self.control.sendall(json.dumps(message).encode() + b"\n")

    def _become_child(self, end: int) -> None:
        os.setsid()
        limits = self.limits
        if limits["namespaces"]:
            seclusion.seclude(limits)
        else:
            seclusion.become(limits["uid"])
        nothing = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(nothing, fd)
        kept = os.dup2(end, 3)
        os.closerange(4, 4096)
        seclusion.restrict(limits, self.size)
        responder.main(socket.socket(fileno=kept))


def kill(pid: int, namespaces: bool) -> None:
    for end in (os.kill,) if namespaces else (os.killpg, os.kill):  # a child that has just begun has no group yet
        with contextlib.suppress(ProcessLookupError):
            end(pid, signal.SIGKILL)


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


def address_space() -> int:
    """Bytes of this process's address space, libraries included."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 2**33  # no /proc, as on macOS


def warm() -> None:
    """torch, and a first product of matrices, so that no child pays for it."""
    import torch

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
    settings = json.loads(sys.argv[3])
    if settings["torch"]:
        warm()
    give(settings["given"] if settings["torch"] else {})
    gc.freeze()  # a child's collector does not walk over what it was born with, so that those pages stay shared
    Zygote(socket.socket(fileno=int(sys.argv[1])), settings).serve()
