"""Whether the operator still works, as seen from outside: a beat of its event loop, and no look that never ends.

kopf's own liveness answers as long as its web server does, also while every daemon waits for something that will never
come. So two things are watched. The loop beats once a second, and a loop that is blocked does not. Each look says when
it begins and ends, and one that takes longer than any search may think counts like a missing beat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["BEAT_S", "Heartbeat", "keep_beating"]

BEAT_S = 1.0


class Heartbeat:
    """When the operator last showed life. All times are seconds of one monotonic clock.

    Args:
        now: when it was started: an operator that never beats grows old from here.
    """

    def __init__(self, now: float) -> None:
        self._last = now
        self._begun: dict[object, float] = {}

    def beat(self, now: float) -> None:
        """The loop turns."""
        self._last = max(self._last, now)

    @contextmanager
    def working(self, clock: Callable[[], float]) -> Iterator[None]:
        """Something is done that has to end, such as one look. Many may run beside each other."""
        token = object()
        self._begun[token] = clock()
        try:
            yield
        finally:
            del self._begun[token]

    def age(self, now: float) -> float:
        """Seconds since the last beat, or since the oldest unfinished work began if that is longer."""
        return max(0.0, now - min([self._last, *self._begun.values()]))


async def keep_beating(heartbeat: Heartbeat, clock: Callable[[], float], every_s: float = BEAT_S) -> None:
    """Beat until cancelled. An operator without any LlamaDeployment is alive too."""
    while True:
        heartbeat.beat(clock())
        await asyncio.sleep(every_s)
