"""Whether the operator still works, as seen from outside: a beat of its event loop, and no look that never ends.

kopf's own liveness answers as long as its web server does, also while every daemon waits for something that will never
come. So two things are watched. The loop beats once a second, and a loop that is blocked does not. Each look says when
it begins and ends, and one that gets nowhere for longer than any search may think counts like a missing beat.

An API server that is away or slow is no such thing: a restart would not bring it back. Each request to it has an end of
its own, and whatever that is, the look has got somewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["BEAT_S", "Heartbeat", "got_somewhere", "keep_beating"]

BEAT_S = 1.0


@dataclass(eq=False, slots=True)
class _Work:
    clock: Callable[[], float]
    moved: float
    """When it began, or got somewhere last."""


_WORK: ContextVar[_Work | None] = ContextVar("work", default=None)
"""What the present task works on."""


class Heartbeat:
    """When the operator last showed life. All times are seconds of one monotonic clock.

    Args:
        now: when it was started: an operator that never beats grows old from here.
    """

    def __init__(self, now: float) -> None:
        self._last = now
        self._under_way: set[_Work] = set()

    def beat(self, now: float) -> None:
        """The loop turns."""
        self._last = max(self._last, now)

    @contextmanager
    def working(self, clock: Callable[[], float]) -> Iterator[None]:
        """Something is done that has to end, such as one look. Many may run beside each other."""
        work = _Work(clock, clock())
        self._under_way.add(work)
        token = _WORK.set(work)
        try:
            yield
        finally:
            _WORK.reset(token)
            self._under_way.remove(work)

    def age(self, now: float) -> float:
        """Seconds since the last beat, or for which some work has got nowhere if that is longer."""
        return max(0.0, now - min([self._last, *(work.moved for work in self._under_way)]))


def got_somewhere() -> None:
    """Something that has an end of its own has ended, well or not: the work that it was a part of is not stuck."""
    if (work := _WORK.get()) is not None:
        work.moved = work.clock()


async def keep_beating(heartbeat: Heartbeat, clock: Callable[[], float], every_s: float = BEAT_S) -> None:
    """Beat until cancelled. An operator without any LlamaDeployment is alive too."""
    while True:
        heartbeat.beat(clock())
        await asyncio.sleep(every_s)
