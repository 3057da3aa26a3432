"""Whether the API server answers, on each way on which an operator talks to it: its own requests, and kopf's watches.

An operator is alive without an API server, since no restart would bring that back, but it is not ready: it sees and
does nothing. The two ways have connections and credentials of their own, so that one says little about the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from slotune.controller.cluster import Cluster, ClusterError

__all__ = ["PROBE_EVERY_S", "REQUESTS_S", "WATCHES_S", "Contact", "keep_in_touch", "troubles"]

PROBE_EVERY_S: Final = 30.0
"""An operator that has nothing to ask asks for next to nothing so often."""
PROBE_AGAIN_S: Final = 5.0
"""Between two such questions while there is no answer."""
REQUESTS_S: Final = 60.0
"""Silence on the operator's own requests that counts: two questions for next to nothing have failed by then."""
WATCHES_S: Final = 390.0
"""Silence of kopf's watches that counts: the API server ends each of them after 300 s, and kopf begins it anew."""
FAILING_S: Final = 60.0
"""A way on which everything fails for so long is closed, however lately there was an answer before."""

_NO_ANSWERS: Final = frozenset({401, 429})
"""An operator whose token is not taken, or which is told to wait, is not served. Other refusals are answers."""


class Contact:
    """One way to the API server, and when there was an answer on it last.

    Args:
        name: what it is, for people.
        oldest_s: an answer that is older counts no longer.
        clock: seconds, monotonic.
    """

    def __init__(self, name: str, oldest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._oldest_s, self._clock = name, oldest_s, clock
        self._answered: float | None = None
        self._failing_since: float | None = None

    def heard(self, status: int) -> None:
        """The API server, or a proxy before it, answered with that HTTP status."""
        if status >= 500 or status in _NO_ANSWERS:
            self.failed()
        else:
            self._answered, self._failing_since = self._clock(), None

    def failed(self) -> None:
        """No answer came."""
        if self._failing_since is None:
            self._failing_since = self._clock()

    @property
    def silence_s(self) -> float:
        """Seconds since the last answer; infinite when there was none."""
        return float("inf") if self._answered is None else self._clock() - self._answered

    @property
    def trouble(self) -> str:
        """What is wrong, in words; empty while nothing is."""
        if self._answered is None:
            return f"{self._name}: the API server has not answered yet"
        failing_s = 0.0 if self._failing_since is None else self._clock() - self._failing_since
        if self.silence_s > self._oldest_s or failing_s > FAILING_S:
            return f"{self._name}: no answer of the API server for {self.silence_s:.0f} s"
        return ""


def troubles(is_started: bool, contacts: Iterable[Contact]) -> str:
    """Why an operator is not ready, in words; empty when it is."""
    if not is_started:
        return "the caches are not filled yet"
    return "; ".join(contact.trouble for contact in contacts if contact.trouble)


async def keep_in_touch(
    cluster: Cluster, contact: Contact, every_s: float = PROBE_EVERY_S, again_s: float = PROBE_AGAIN_S
) -> None:
    """Ask for next to nothing whenever nothing else was answered for ``every_s``, until cancelled."""
    while True:
        left_s = every_s - contact.silence_s
        if left_s > 0:
            await asyncio.sleep(left_s)
            continue
        try:
            await cluster.ping()
        except ClusterError:  # a refusal is an answer, and the contact knows which one it was
            await asyncio.sleep(again_s)
