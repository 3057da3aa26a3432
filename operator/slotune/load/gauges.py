"""What the server says about itself while it is under load: slots at work, requests that wait, tokens made.

There is one scraper at a time and it is patient: older llama-servers answer ``/metrics`` only between two
decodes (ggml-org/llama.cpp#24866), so a slow answer means "busy", never "down", and a missing metric or a
``nan`` before the first decode (#11915) is nothing to stumble over.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass

import aiohttp

from slotune.load.target import Target

__all__ = ["Gauges", "Sampler", "parse_gauges", "scrape", "wait_idle"]

SAMPLE_EVERY_S = 1.0
SCRAPE_TIMEOUT_S = 10.0
IDLE_POLL_S = 0.1
_PREFIX = "llamacpp:"


@dataclass(frozen=True, slots=True)
class Gauges:
    """One scrape; None where the server did not say."""

    processing: int | None = None
    deferred: int | None = None
    predicted_tokens: int | None = None
    """Counter of generated tokens; it moves when a slot is released."""
    decodes: float | None = None
    busy_slots_per_decode: float | None = None
    """Mean over the server's whole life."""

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return self.processing == 0 and not self.deferred


def parse_gauges(text: str) -> Gauges:
    """Read the Prometheus text of llama-server's ``/metrics``; unknown and unreadable lines are skipped."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith(_PREFIX):
            continue
        name, _, rest = line.removeprefix(_PREFIX).partition(" ")
        try:
            value = float(rest.split()[0])
        except (ValueError, IndexError):
            continue
        if math.isfinite(value):
            values[name] = value

    def whole(name: str) -> int | None:
        return int(values[name]) if name in values else None

    return Gauges(
        processing=whole("requests_processing"),
        deferred=whole("requests_deferred"),
        predicted_tokens=whole("tokens_predicted_total"),
        decodes=values.get("n_decode_total"),
        busy_slots_per_decode=values.get("n_busy_slots_per_decode"),
    )


async def scrape(
    session: aiohttp.ClientSession, target: Target, *, timeout_s: float = SCRAPE_TIMEOUT_S
) -> Gauges | None:
    """Read ``/metrics`` once. None when it is off, slow or unreadable: that is never an error of the server."""
    try:
        async with (
            asyncio.timeout(timeout_s),
            session.get(target.url("/metrics"), headers={"Accept": "text/plain"}, allow_redirects=False) as response,
        ):
            if response.status != 200:
                return None
            return parse_gauges((await response.read()).decode("utf-8", "replace"))
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return None


async def wait_idle(session: aiohttp.ClientSession, target: Target, *, timeout_s: float) -> Gauges | None:
    """Poll until nothing runs and nothing waits, at most ``timeout_s``; return the last scrape, idle or not.

    The end of the last answer is not the end of the work: a cancelled request runs on for a second or so.
    None, at once, when the server has no metrics or does not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        gauges = await scrape(session, target, timeout_s=max(IDLE_POLL_S, deadline - time.monotonic()))
        if gauges is None or gauges.processing is None:
            return None
        if gauges.idle or time.monotonic() >= deadline:
            return gauges
        await asyncio.sleep(IDLE_POLL_S)


class Sampler:
    """Samples once a second while it runs, never two scrapes at a time."""

    def __init__(self, session: aiohttp.ClientSession, target: Target, *, start: float) -> None:
        """``start``: ``time.perf_counter()`` of the run's zero."""
        self._session = session
        self._target = target
        self._start = start
        self.samples: list[tuple[float, int, int]] = []
        """(seconds after the start when the answer came, processing, deferred)"""
        self._first: Gauges | None = None
        self._last: Gauges | None = None

    async def run(self) -> None:
        """Sample until cancelled; end at once when the server has no metrics."""
        next_at = time.perf_counter()
        while True:
            gauges = await scrape(self._session, self._target)
            if gauges is not None:
                if gauges.processing is None:
                    return
                self.samples.append((time.perf_counter() - self._start, gauges.processing, gauges.deferred or 0))
                self._first = self._first or gauges
                self._last = gauges
            next_at = max(next_at + SAMPLE_EVERY_S, time.perf_counter())
            await asyncio.sleep(next_at - time.perf_counter())

    def busy_slots(self) -> float | None:
        """Return the mean slots per decode between the first and the last sample; None when it can't be told.

        The gauge is a mean over the server's life, so the window's is the difference of (gauge x decodes).
        """
        first, last = self._first, self._last
        if first is None or last is None or first.decodes is None or last.decodes is None:
            return None
        decodes = last.decodes - first.decodes
        if decodes <= 0 or last.busy_slots_per_decode is None:
            return None
        before = (first.busy_slots_per_decode or 0.0) * first.decodes
        return (last.busy_slots_per_decode * last.decodes - before) / decodes
