"""Who must look again when something changes: one event per LlamaDeployment, set by whatever concerns it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from slotune.controller.store import Key

__all__ = ["Wakes"]


class Wakes:
    """Wake-up calls by LlamaDeployment. Calls that come while nobody sleeps are kept, and count once."""

    def __init__(self) -> None:
        self._events: dict[Key, asyncio.Event] = {}
        self._waiting_for_slot: set[Key] = set()

    def begin(self, key: Key) -> asyncio.Event:
        """A scheduler begins: the event that it waits for. One that still ends for an older object loses its own."""
        event = self._events[key] = asyncio.Event()
        return event

    def event(self, key: Key) -> asyncio.Event:
        """The event of the scheduler."""
        return self._events.setdefault(key, asyncio.Event())

    def forget(self, key: Key, event: asyncio.Event | None = None) -> None:
        """The scheduler that waited for ``event`` has ended; one for another object of the same name is left alone."""
        if event is None or self._events.get(key) is event:
            self._events.pop(key, None)
            self._waiting_for_slot.discard(key)

    def wake(self, keys: Iterable[Key]) -> None:
        """Have these look again. Keys without a scheduler are ignored."""
        for key in keys:
            if event := self._events.get(key):
                event.set()

    def wait_for_slot(self, key: Key, waits: bool) -> None:
        """Whether it wants to be woken when any trial anywhere ends."""
        (self._waiting_for_slot.add if waits else self._waiting_for_slot.discard)(key)

    def slot_is_free(self) -> None:
        """A trial ended somewhere."""
        self.wake(tuple(self._waiting_for_slot))
