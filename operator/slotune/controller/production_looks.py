"""Looks at production that go on while everything else does: a Prometheus that is silent holds nobody up.

One look at a time for each LlamaDeployment. Most answer at once, and are part of the look that asked; of one that takes
longer the end wakes its LlamaDeployment, which finds it then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from slotune.controller.store import Key
from slotune.production.looks import Look

__all__ = ["ProductionLooks"]

AT_ONCE_S: Final = 0.25
"""So long a look is waited for. A Prometheus in the same cluster takes milliseconds."""


class ProductionLooks:
    """The looks that are under way.

    Args:
        wake: called when a look has ended that nobody waits for.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._under_way: dict[str, asyncio.Future[Look]] = {}

    async def take(self, uid: str, key: Key, question: Callable[[], Awaitable[Look]]) -> Look | None:
        """The look that ``question`` takes, or the one that was under way; None while it is.

        Args:
            uid: of the LlamaDeployment.
            key: of the LlamaDeployment.
            question: only called where none is under way.
        """
        look = self._under_way.get(uid)
        if look is None:
            look = self._under_way[uid] = asyncio.ensure_future(question())
            await asyncio.wait({look}, timeout=AT_ONCE_S)
            if not look.done():
                look.add_done_callback(lambda _: self._wake(key))
        if not look.done():
            return None
        del self._under_way[uid]
        return look.result()
