"""A student's code apart from everything: bubblewrap around a warm Python (`inside/zygote.py`) that forks a child for each submission.

A child sees the system's libraries and Python, read-only, an empty /tmp of limited size, and the one socket on which it answers. It
has no network, no other process in sight, no environment, a user of its own without rights, and limits on memory, processor time,
processes, files and open descriptors. When it is closed, the kernel ends everything that it started.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import TracebackType

from autograder.inside.shell import COURSE  # which may be installed among the libraries
from autograder.judging.clock import Usage

PACKAGE = Path(__file__).parents[1]
INSIDE = PACKAGE / "inside"
SITE = "/site"
# All that may ever be had of the course in a sandbox. A submission gets of it what its exercise's own cells import, and nothing else of
# `autograder` and `specdec`: neither as a module nor as a file. A name that a module here imports must stand here before it.
GIVEN = {"autograder.checks.tiny": PACKAGE / "checks" / "tiny.py"}
# What is seen of the system: programs and libraries. Not /usr/local/share, where nbgrader's exchange lies, nor whatever else an
# administrator keeps in /usr or /usr/local.
SYSTEM = (
    *(f"/usr/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share", "local/bin", "local/lib")),
    "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/alternatives", "/etc/ld.so.cache",
)  # fmt: skip
FIRST_UID = 60_000  # users that nobody has; each sandbox its own, so that they do not share a limit
START, ANSWER = 120.0, 60.0  # seconds for Python and torch to start in, and for an answer of what was started, on a busy machine


class SandboxError(RuntimeError):
    """The sandbox itself does not work; nobody's submission is to blame."""


@dataclass(frozen=True)
class Limits:
    """Of one submission. memory: bytes beyond what Python and torch have; disk: bytes of /tmp and of a file; cpu_seconds: of one
    child, its own processes counted each for itself; processes: at one time."""

    memory: int = 2**30
    disk: int = 2**25
    cpu_seconds: int = 600
    processes: int = 32


@cache
def unavailable() -> str:
    """Why there can be no sandbox here; empty if there can."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, and this is {sys.platform}"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (on Debian or Ubuntu: sudo apt install bubblewrap)"
    trial = [os.path.realpath(sys.executable), "-I", "/inside/start.py", "trial", SITE, json.dumps(_settings(Limits(), False, False))]
    tried = subprocess.run([*_bwrap(), *trial], capture_output=True, text=True)
    if tried.returncode:
        return f"bubblewrap does not run here: {(tried.stderr.strip().splitlines() or [tried.returncode])[-1]}"
    return ""


def _settings(limits: Limits, unsafe: bool, torch: bool) -> dict:
    """What the inside has to know."""
    another = os.getuid() == 0 and (not unsafe or open_to_all())
    given = {name: str(path) if unsafe else f"/given/{name}.py" for name, path in GIVEN.items()}
    uid = FIRST_UID + os.getpid() % 5000 if another else 0
    return {**asdict(limits), "namespaces": not unsafe, "uid": uid, "given": given, "torch": torch}


def _bwrap(libraries: Path = Path(sysconfig.get_path("purelib"))) -> list[str]:
    """The command that everything inside is run by. As root it needs no user namespace: the children get a user of their own."""
    users = ["--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-add", "CAP_SYS_ADMIN"]
    if os.getuid() == 0:
        users = ["--cap-drop", "ALL", *(f"--cap-add={cap}" for cap in ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"))]
        users = [part for word in users for part in word.split("=")]
    python, libraries = Path(sys.base_prefix).resolve(), libraries.resolve()
    seen = [p for p in SYSTEM if Path(p).exists()]
    binds = [part for folder in ("/usr", "/usr/local", "/etc") for part in ("--perms", "0755", "--dir", folder)]
    binds += [part for p in seen for part in (("--symlink", os.readlink(p), p) if Path(p).is_symlink() else ("--ro-bind", p, p))]
    if python not in (Path("/usr"), Path("/usr/local")):
        above = [str(folder) for folder in reversed(python.parents) if folder != folder.parent]  # which only root may enter, as /root
        binds += [part for folder in above for part in ("--perms", "0755", "--dir", folder)]
        binds += ["--ro-bind", str(python), str(python)]
    environment = {
        "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp",
        "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    return [
        "bwrap", *users, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--hostname", "sandbox",
        "--die-with-parent", "--new-session", "--clearenv",
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        *binds, "--ro-bind", str(libraries), SITE, "--ro-bind", str(INSIDE), "/inside",
        *(part for name in COURSE if (libraries / name).is_dir() for part in ("--size", "4096", "--tmpfs", f"{SITE}/{name}")),
        *(part for name, path in GIVEN.items() for part in ("--ro-bind", str(path), f"/given/{name}.py")),
        "--proc", "/proc", "--dev", "/dev", "--size", str(2**20), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp", "--",
    ]  # fmt: skip


def open_to_all() -> bool:
    """Whether another user may read Python and its libraries where they lie; without bubblewrap a child of root's must."""
    folders = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib")] + [INSIDE]
    return all(folder.stat().st_mode & 0o005 == 0o005 for path in folders for folder in (path, *path.parents))


class Sandbox:
    """A warm Python, in bubblewrap or, with unsafe, in no more than a process of its own: another user's, where it is root's and can be.

    torch: whether every child begins with it. Without, one that imports it itself pays for that: with a second, and with the memory
        that a submission may take.

    It starts while its owner does something else: the first `open` waits for it.

    Raises:
        SandboxError: if there can be none; from `open`, if it has not started.
    """

    def __init__(self, limits: Limits = Limits(), unsafe: bool = False, torch: bool = True):
        if not unsafe and unavailable():
            raise SandboxError(unavailable())
        self._count, self._buffer, self._ended = 0, b"", {}
        settings = json.dumps(_settings(limits, unsafe, torch))
        self._control, theirs = socket.socketpair()
        with theirs:
            python = os.path.realpath(sys.executable)
            place, site = (str(INSIDE), sysconfig.get_path("purelib")) if unsafe else ("/inside", SITE)
            command = [python, "-I", f"{place}/start.py", "zygote", site, str(theirs.fileno()), settings]
            self._process = subprocess.Popen(
                command if unsafe else [*_bwrap(), *command], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath), "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def open(self, given: Sequence[str] = ()) -> Child:
        """A fresh child for a submission. given: the names of GIVEN that its exercise declares."""
        if not self._count:
            self._wait("ready", None, START)
        self._count += 1
        ours, theirs = socket.socketpair()
        with theirs:
            self._tell({"open": self._count, "given": list(given)}, [theirs.fileno()])
            self._wait("opened", self._count, ANSWER)
        return Child(self, self._count, ours)

    def end(self, number: int) -> int:
        """Kills a child and waits until it is gone: its exit status."""
        if number not in self._ended:
            self._tell({"kill": number})
            self._wait("ended", number, ANSWER)
        return self._ended.pop(number)

    def usage(self, number: int) -> Usage | None:
        """Of a child and all that it started; None if it is gone. A sandbox has one child at a time."""
        if number in self._ended:
            return None
        self._tell({"usage": number})
        found = self._wait("usage", number, ANSWER)
        return Usage(found["cpu"], found["queued"])

    def _tell(self, message: dict, passed: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode() + b"\n"], passed)
        except OSError as error:
            raise SandboxError(f"the sandbox cannot be told anything: {error}") from error

    def _wait(self, what: str, number: int | None, seconds: float) -> dict:
        deadline = time.monotonic() + seconds
        while True:
            while b"\n" in self._buffer:
                line, self._buffer = self._buffer.split(b"\n", 1)
                message = json.loads(line)
                if "ended" in message:
                    self._ended[message["ended"]] = message["status"]
                if what in message and number in (None, message[what]):
                    return message
            self._control.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                data = self._control.recv(2**16)
            except TimeoutError:
                raise SandboxError(f"the sandbox does not answer within {seconds:.0f} s") from None
            if not data:
                self._process.wait()
                raise SandboxError(f"the sandbox ended: {self._process.stderr.read().decode(errors='replace').strip()[-500:]}")
            self._buffer += data

    def close(self) -> None:
        self._control.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stderr.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Child:
    """A submission's process, and the judge's end of its socket."""

    def __init__(self, sandbox: Sandbox, number: int, end: socket.socket):
        self._sandbox, self._number, self.socket = sandbox, number, end

    def usage(self) -> Usage | None:
        """What it has had of the processors; None if it is gone."""
        return self._sandbox.usage(self._number)

    def close(self) -> int:
        """Ends the process and all that it started. Returns its exit status."""
        self.socket.close()
        return self._sandbox.end(self._number)
