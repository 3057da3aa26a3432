"""At most so many are at work at the same time, and who only waits for somebody else's answer is not at work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

__all__ = ["Turns", "aside"]


class _Turn:
    """One task's."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places, self._held = places, False

    async def take(self) -> None:
        await self._places.acquire()
        self._held = True

    def give_back(self) -> None:
        """Harmless twice: a task may be cancelled while it waits for its place to come back."""
        if self._held:
            self._held = False
            self._places.release()


_TURN: ContextVar[_Turn | None] = ContextVar("turn", default=None)
"""The present task's."""


class Turns:
    """Places for tasks.

    Args:
        at_once: how many there are.
    """

    def __init__(self, at_once: int) -> None:
        self._places = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Work, when there is a place."""
        turn = _Turn(self._places)
        await turn.take()
        token = _TURN.set(turn)
        try:
            yield
        finally:
            _TURN.reset(token)
            turn.give_back()


@asynccontextmanager
async def aside() -> AsyncIterator[None]:
    """Let others have the place meanwhile. Without a turn it does nothing."""
    turn = _TURN.get()
    if turn is None:
        yield
        return
    turn.give_back()
    try:
        yield
    finally:
        await turn.take()
