"""Limits of a child's time that do not depend on what else the machine does.

A child is charged its processor time, and of the time that the judge waits for it the part in which it slept, at half: a disk or a
network file system may be slow, too. It is not charged for standing in line for a processor, nor for the judge's doing so, which it
cannot help. Where the kernel does not tell how long that was (gVisor, macOS), the clock may show WALL times a limit instead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autograder.inside.usage import own_queued_seconds

SLEEPING = 0.5  # of a second, for each in which a child sleeps
WALL = 4.0  # times a limit, on the clock, where the kernel does not tell who starved
MOST_WALL = 20.0  # where it does: somebody may stand in line on purpose, in a crowd of own threads that hardly run
AGAIN = 0.25  # seconds at least between two looks at what a child has used


@dataclass(frozen=True)
class Usage:
    """What a child with all that it started has had. cpu: processor seconds; queued: {thread: seconds in line for a processor}, or
    None where nobody can know."""

    cpu: float = 0.0
    queued: dict[str, float] | None = None


@dataclass
class Limit:
    """So many seconds, from a point on: what the child had had by then, and what the judge had waited. look: seconds of waiting
    before which it cannot have been passed."""

    seconds: float
    usage: Usage
    waited: float
    own: float
    look: float


class Clock:
    """Of one child. usage: what it has had, None if it is gone; now and own: the wall's clock, and the judge's time in line."""

    def __init__(
        self,
        usage: Callable[[], Usage | None],
        now: Callable[[], float] = time.monotonic,
        own: Callable[[], float] = own_queued_seconds,
    ):
        self._usage, self._now, self._own = usage, now, own
        self._waited, self._last = 0.0, Usage()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While the judge waits for the child. The rest of the time the child waits for the judge."""
        began = self._now()
        try:
            yield
        finally:
            self._waited += self._now() - began

    def limit(self, seconds: float) -> Limit:
        return Limit(seconds, self._looked(), self._waited, self._own(), seconds)

    def used(self, limit: Limit) -> float:
        """Seconds of the limit that are charged by now."""
        waited, usage = self._waited - limit.waited, self._looked()
        cpu = usage.cpu - limit.usage.cpu
        if usage.queued is None:
            return max(cpu, waited / WALL)
        before = limit.usage.queued or {}
        queued = max((seconds - before.get(thread, 0.0) for thread, seconds in usage.queued.items()), default=0.0)
        asleep = waited - cpu - queued - (self._own() - limit.own)
        return max(cpu + SLEEPING * max(0.0, asleep), waited / MOST_WALL)

    def left(self, limit: Limit) -> float:
        """Seconds of waiting after which to ask again; 0 or less if the limit is passed."""
        waited = self._waited - limit.waited
        if waited < limit.look:
            return limit.look - waited
        left = limit.seconds - self.used(limit)
        if left > 0:
            left = max(left, AGAIN)
            limit.look = waited + left
        return left

    def _looked(self) -> Usage:
        """What is known of a child that is gone is what was known last."""
        found = self._usage() or Usage()
        self._last = Usage(max(found.cpu, self._last.cpu), found.queued)
        return self._last
