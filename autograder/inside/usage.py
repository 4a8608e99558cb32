"""What processes have had of the processors, and how long they stood in line for one: Linux's /proc, where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def processes(proc: Path = PROC) -> list[str]:
    try:
        return [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return []


def of_session(leader: int, proc: Path = PROC) -> list[str]:
    """The processes of a session (setsid), as far as they are in sight."""
    return [pid for pid in processes(proc) if (fields := _stat(pid, proc)) and fields[3] == str(leader)]


def cpu_seconds(pids: Iterable[str], proc: Path = PROC) -> float:
    """Processor time of these processes with their threads, and with the processes of theirs that have ended."""
    ticks = sum(sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(pid, proc)))
    return ticks / os.sysconf("SC_CLK_TCK")


def queued_seconds(pids: Iterable[str], proc: Path = PROC) -> dict[str, float] | None:
    """{thread: seconds in which it could have run, and no processor was free}; None where the kernel does not tell.

    A kernel without this accounting has no such file (as gVisor), or has zeros in it.
    """
    queued, ran = {}, 0
    for pid in pids:
        try:
            for thread in os.listdir(proc / pid / "task"):
                on, waiting = (proc / pid / "task" / thread / "schedstat").read_text().split()[:2]
                queued[thread], ran = int(waiting) / 1e9, ran + int(on)
        except (OSError, ValueError):
            continue  # gone meanwhile
    return queued if ran else None


def own_queued_seconds(proc: Path = PROC) -> float:
    """Of the calling thread; 0 where the kernel does not tell."""
    try:
        return int((proc / "thread-self" / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _stat(pid: str, proc: Path) -> list[str]:
    """The fields of a process's `stat` after its name, which may hold anything; none if it is gone."""
    try:
        return (proc / pid / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
