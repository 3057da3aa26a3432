"""Threads for questions that may never be answered, apart from all others.

A thread that waits for a host that is silent can do nothing else. So these have threads of their own, and a bounded
number of them; who was silent the last time waits in a lane with others that were, so that nobody who answers has to
wait behind them. The time for an answer counts from the moment at which a thread takes the question up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["Lanes"]

THREADS: Final = 32
"""A look at one Prometheus asks up to four questions at the same time."""
SLOW_THREADS: Final = 16
REMEMBERED: Final = 4096
"""Silent ones whose names are kept."""

T = TypeVar("T")


class Lanes:
    """Two pools of threads. They start when they are needed."""

    def __init__(self, threads: int = THREADS, slow_threads: int = SLOW_THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, "answers")
        self._slow_threads = ThreadPoolExecutor(slow_threads, "silence")
        self._silent: OrderedDict[str, None] = OrderedDict()

    async def ask(self, whom: str, question: Callable[[], T], limit_s: float) -> T:
        """What ``question`` returns, on a thread.

        Args:
            whom: who is asked, such as an address.
            question: has to come to an end of its own, or to be ended, when nobody waits for it any more.
            limit_s: for the answer, once a thread has taken it up.

        Raises TimeoutError.
        """
        loop, taken_up = asyncio.get_running_loop(), asyncio.Event()

        def run() -> T:
            loop.call_soon_threadsafe(taken_up.set)
            return question()

        answer = loop.run_in_executor(self._slow_threads if whom in self._silent else self._threads, run)
        try:
            await taken_up.wait()
            async with asyncio.timeout(limit_s):
                found = await answer
        except TimeoutError:
            self._silent[whom] = None
            self._silent.move_to_end(whom)
            while len(self._silent) > REMEMBERED:
                self._silent.popitem(last=False)
            raise
        finally:
            answer.cancel()  # one that no thread has taken up never is
        self._silent.pop(whom, None)
        return found
