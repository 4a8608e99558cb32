"""Limits of a child's time that do not depend on what else the machine does.

A child may compute for its seconds, and sleep for a while besides: a disk or a network file system may be slow. Neither its standing in
line for a processor counts, nor the judge's, which it cannot help, nor the time in which it waits for the judge. Where the kernel does
not tell how long somebody stood in line (gVisor, macOS), the clock may show WALL times a limit instead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autograder.inside.usage import own_queued_seconds

SLEEP, MOST_SLEEP = 2.0, 10.0  # times a limit, and seconds at most, in which a child may sleep
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
    """So many seconds of computing and of sleep, from a point on: what the child had had by then, and what the judge had waited.
    look: seconds of waiting before which it cannot have been passed."""

    seconds: float
    sleep: float
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

    def limit(self, seconds: float, sleep: float | None = None) -> Limit:
        sleep = min(SLEEP * seconds, MOST_SLEEP) if sleep is None else sleep
        return Limit(seconds, sleep, self._looked(), self._waited, self._own(), min(seconds, sleep))

    def used(self, limit: Limit) -> float:
        """Seconds that the child has computed or slept since."""
        cpu, asleep, _waited = self._since(limit)
        return cpu + asleep

    def left(self, limit: Limit) -> float:
        """Seconds of waiting after which to ask again; 0 or less if the limit is passed."""
        waited = self._waited - limit.waited
        if waited < limit.look:
            return limit.look - waited
        cpu, asleep, waited = self._since(limit)
        left = min(limit.seconds - cpu, limit.sleep - asleep, MOST_WALL * limit.seconds - waited)
        if left > 0:
            left = max(left, AGAIN)
            limit.look = waited + left
        return left

    def _since(self, limit: Limit) -> tuple[float, float, float]:
        """Seconds since the limit began: of processor time, of sleep, and of the judge's waiting."""
        waited, usage = self._waited - limit.waited, self._looked()
        cpu = usage.cpu - limit.usage.cpu
        if usage.queued is None:
            return max(cpu, waited / WALL), 0.0, waited
        before = limit.usage.queued or {}
        queued = max((seconds - before.get(thread, 0.0) for thread, seconds in usage.queued.items()), default=0.0)
        return cpu, max(0.0, waited - cpu - queued - (self._own() - limit.own)), waited

    def _looked(self) -> Usage:
        """What is known of a child that is gone is what was known last."""
        found = self._usage() or Usage()
        self._last = Usage(max(found.cpu, self._last.cpu), found.queued)
        return self._last
