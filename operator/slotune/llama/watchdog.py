"""Is a server that holds requests still doing anything?

/health stays 200 while llama.cpp hangs (ggml-org/llama.cpp#27388), and a slow /slots or /metrics is normal during a
decode, so neither alone proves anything. A server is wedged when it owes work and *nothing* has moved for the limit:
no token at the client, no decode counted, no slot further along. An idle server is wedged when it does not even answer
/slots for that long.

:func:`judge` decides from two samples and does nothing else; :class:`Watchdog` only takes samples.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from slotune.llama.server_answers import Slot
from slotune.llama.server_http import EndpointDisabledError, LlamaServer, ServerError

__all__ = ["Heartbeat", "Sample", "Vigil", "Watchdog", "judge"]

LIMIT_S = 60.0
"""Without any sign of life. A batch of 2,048 prompt tokens takes 12 s at 170 tokens/s, the slowest prefill seen."""

INTERVAL_S = 2.0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the load client knows; cheap enough to ask for at any time."""

    in_flight: int
    """Requests that were sent and have not ended."""
    token_events: int
    """Events with tokens, and ended requests, since the start: it only has to grow while work is done."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at client and server. None: the server did not answer that question this time."""

    at_s: float
    client: Heartbeat
    decodes: int | None = None
    slots: tuple[Slot, ...] | None = None


@dataclass(frozen=True, slots=True)
class Vigil:
    """What is remembered between samples."""

    last: Sample
    moved_at_s: float
    """When something last moved, or there was nothing to do."""
    answered_at_s: float
    """When the server last answered a question."""
    wedged: str | None = None
    """Why the server is wedged; None while it is not."""

    @classmethod
    def begin(cls, sample: Sample) -> Vigil:
        """The first sample is taken as a sign of life."""
        return cls(sample, sample.at_s, sample.at_s)


def judge(vigil: Vigil, sample: Sample, limit_s: float = LIMIT_S) -> Vigil:
    """Take one more sample into account. Once wedged, wedged it stays."""
    if vigil.wedged:
        return vigil
    last = vigil.last
    answered = sample.decodes is not None or sample.slots is not None
    moved = (
        sample.client.in_flight == 0
        or last.client.in_flight == 0
        or sample.client.token_events != last.client.token_events
        or _differs(sample.decodes, last.decodes)
        or _differs(sample.slots, last.slots)
    )
    kept = replace(
        sample,
        # A question that was not answered must not hide progress: the next answer is compared with the last there was.
        decodes=last.decodes if sample.decodes is None else sample.decodes,
        slots=last.slots if sample.slots is None else sample.slots,
    )
    moved_at_s = sample.at_s if moved else vigil.moved_at_s
    answered_at_s = sample.at_s if answered else vigil.answered_at_s
    wedged = None
    if sample.at_s - moved_at_s >= limit_s:
        silent = " and /slots does not answer" if sample.at_s - answered_at_s >= limit_s else ""
        wedged = f"{sample.client.in_flight} requests in flight, no token and no decode for {limit_s:g} s{silent}"
    elif sample.client.in_flight == 0 and sample.at_s - answered_at_s >= limit_s:
        wedged = f"no request in flight, yet /slots does not answer for {limit_s:g} s"
    return Vigil(kept, moved_at_s, answered_at_s, wedged)


def _differs(new: object | None, old: object | None) -> bool:
    return new is not None and old is not None and new != old


class Watchdog:
    """Samples one server until it is wedged.

    Args:
        server: the server's control endpoints; its time-out bounds how long a look may take.
        heartbeat: asks the load client.
        limit_s: seconds without a sign of life.
        interval_s: seconds between two samples.
        clock: seconds, monotonic.
        sleep: waits between two samples.
    """

    def __init__(
        self,
        server: LlamaServer,
        heartbeat: Callable[[], Heartbeat],
        *,
        limit_s: float = LIMIT_S,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._heartbeat = heartbeat
        self._limit_s = limit_s
        self._interval_s = interval_s
        self._clock = clock
        self._sleep = sleep

    async def run(self) -> str:
        """Return why the server is wedged, once it is; run it as a task and cancel it when the load ends."""
        vigil = Vigil.begin(await self._look())
        while vigil.wedged is None:
            await self._sleep(self._interval_s)
            vigil = judge(vigil, await self._look(), self._limit_s)
        return vigil.wedged

    async def _look(self) -> Sample:
        decodes, slots = await asyncio.gather(self._decodes(), self._slots())
        # The client is asked last: its answer must not be older than the server's.
        return Sample(self._clock(), self._heartbeat(), decodes, slots)

    async def _decodes(self) -> int | None:
        try:
            return (await self._server.metrics()).decodes
        except ServerError:
            return None

    async def _slots(self) -> tuple[Slot, ...] | None:
        try:
            return await self._server.slots()
        except EndpointDisabledError:
            return ()
        except ServerError:
            return None
