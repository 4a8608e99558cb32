"""A warm Python that forks a child for each submission: torch, if asked for, is imported once, and every child begins from the same
clean memory.

    python -I zygote.py CONTROL SITE JSON

CONTROL is the number of a socket to the judge, with a line of JSON for each message: it sends {"open": n, "given": [modules]} with the
child's own socket,
{"kill": n} or {"usage": n}, and gets {"opened": n}, {"usage": n, "cpu": s, "queued": {thread: s}} (`usage`), or {"ended": n, "status": s}
when a child is gone (its exit status). SITE is where libraries lie, JSON the limits (`sandbox.Limits`). Only this code has run in this
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
import usage  # noqa: E402


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
                self._open(message["open"], message["given"], passed[0])
            pids = dict(self.children.values())
            if message.get("kill") in pids:
                kill(pids[message["kill"]], self.limits["namespaces"])
            if "usage" in message:
                seen = self._processes(pids.get(message["usage"], 0))
                self._tell({**message, "cpu": usage.cpu_seconds(seen), "queued": usage.queued_seconds(seen)})
        return True

    def _processes(self, pid: int) -> list[str]:
        """A child's with all that it has started. Beside this process and its parent everything in the sandbox is the child's."""
        if self.limits["namespaces"]:
            return [name for name in usage.processes() if name not in ("1", str(os.getpid()))]
        return usage.of_session(pid) if pid else []

    def _open(self, number: int, given: list[str], end: int) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._run(given, end, writing)
        os.close(end)
        os.close(writing)
        with open(reading) as file:
            inner = file.read()
        self.children[pid] = number, int(inner or pid)
        self._tell({"opened": number})

    def _run(self, given: list[str], end: int, writing: int) -> NoReturn:
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
            self._become_child(given, end)
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

    def _become_child(self, given: list[str], end: int) -> None:
        os.setsid()
        limits = self.limits
        give({name: limits["given"][name] for name in given})
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


class Hidden:
    """Finds nothing of the course, wherever it lies, and says so. given: what the exercise may have of it."""

    def __init__(self, given: list[str]):
        self.given = given

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in ("autograder", "specdec"):
            there = ", ".join(["check", *self.given])
            raise ModuleNotFoundError(f"{name} is not there when your work is graded; of the course this exercise has {there}", name=name)


def give(modules: dict[str, str]) -> None:
    """What the exercise declares of the course, and a `check` that leaves it to the judge. In the child: another's has no trace of it."""
    parents = {".".join(name.split(".")[:n]) for name in modules for n in range(1, name.count(".") + 1)}
    for name in {"autograder", "autograder.checks"} | parents:
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = []
    sys.modules["autograder.checks"].check = lambda *_args, **_kwargs: None
    for name, path in modules.items():
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    sys.meta_path.insert(0, Hidden(list(modules)))


if __name__ == "__main__":
    settings = json.loads(sys.argv[3])
    if settings["torch"]:
        warm()
    gc.freeze()  # a child's collector does not walk over what it was born with, so that those pages stay shared
    Zygote(socket.socket(fileno=int(sys.argv[1])), settings).serve()
