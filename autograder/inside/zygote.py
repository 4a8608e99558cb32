"""A warm Python that forks a child for each submission: torch, if asked for, is imported once, and every child begins from the same
clean memory.

    python -I start.py zygote SITE CONTROL JSON

CONTROL is the number of a socket to the judge, with a line of JSON for each message: it sends {"open": n, "given": [modules]} with the
child's own socket,
{"kill": n} or {"usage": n}, and gets {"opened": n}, {"usage": n, "cpu": s, "queued": {thread: s}} (`usage`), or {"ended": n, "status": s}
when a child is gone (its exit status). JSON are the limits (`sandbox.Limits`). Only this code has run in this process; a student's never
does.

A child gets process, mount and IPC namespaces of its own: it is process 1 of its namespace, so that everything it ever started dies
with it; its /tmp, where it begins, is empty and small, its /proc is empty. Then it gives up every privilege, and a filter refuses the
system calls by which it could get another namespace, another process's memory or memory that no limit counts.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import shutil
import signal
import socket
import tempfile
from typing import NoReturn

from . import modules, responder, seclusion, usage


class Zygote:
    def __init__(self, control: socket.socket, limits: dict):
        self.control, self.limits = control, limits
        self.children: dict[int, tuple[int, int]] = {}  # {pid to wait for: (the judge's number, pid to kill)}
        self.folders: dict[int, str] = {}  # {pid to wait for: where it begins}, without namespaces
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
        folder = "/tmp" if self.limits["namespaces"] else self._folder()
        pid = os.fork()
        if pid == 0:
            self._run(given, end, writing, folder)
        os.close(end)
        os.close(writing)
        with open(reading) as file:
            inner = file.read()
        self.children[pid] = number, int(inner or pid)
        if not self.limits["namespaces"]:
            self.folders[pid] = folder
        self._tell({"opened": number})

    def _folder(self) -> str:
        """An empty folder of the child's own."""
        folder = tempfile.mkdtemp(prefix="notebook-")
        if self.limits["uid"]:
            os.chown(folder, self.limits["uid"], self.limits["uid"])
        return folder

    def _run(self, given: list[str], end: int, writing: int, folder: str) -> NoReturn:
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
            self._become_child(given, end, folder)
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
                    shutil.rmtree(self.folders.pop(pid), ignore_errors=True)
                self._tell({"ended": self.children.pop(pid)[0], "status": os.waitstatus_to_exitcode(status)})

    def _tell(self, message: dict) -> None:
        self.control.sendall(json.dumps(message).encode() + b"\n")

    def _become_child(self, given: list[str], end: int, folder: str) -> None:
        os.setsid()
        limits = self.limits
        modules.give({name: limits["given"][name] for name in given})
        if limits["namespaces"]:
            seclusion.seclude(limits)
        else:
            seclusion.become(limits["uid"])
        os.chdir(folder)
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


def main(control: str, limits: str) -> None:
    settings = json.loads(limits)
    if settings["torch"]:
        warm()
    gc.freeze()  # a child's collector does not walk over what it was born with, so that those pages stay shared
    Zygote(socket.socket(fileno=int(control)), settings).serve()
