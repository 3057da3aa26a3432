"""Who waits for a slot at the moments that were looked at, and whether users' speed leaves room for more slots."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Cost, Undecided
from slotune.diagnose.rules import settings, work
from slotune.diagnose.symptoms import Symptoms

__all__ = ["BRIEF", "SPARE", "Waiting", "room_for_more", "waiting"]

BRIEF: Final = 0.5
"""Waiting requests per slot: below it a newcomer waits for less than half of a whole request, as any queue does."""
ENOUGH_LOOKS: Final = 5
"""From here on the mean of the looks is what a request meets; two moments may be odd ones."""
UNDER_LOAD: Final = "a look while requests come in: --url of the busy server"
SPARE: Final = 1.3
"""Users have speed to spare from so many times what is owed."""
HARDLY_SLOWER: Final = 0.8
"""Users who keep this part of the speed that one has alone hardly feel each other."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Requests wait in every look, or in the mean of many."""

    deferred: tuple[int, ...]
    busy: int
    """Fewest slots at work in any look; of many looks the median of those in which somebody waits."""
    slots: int
    evidence: tuple[Evidence, ...]

    @property
    def rounds(self) -> float:
        """Mean requests that wait, per slot: by Little's law the wait over the time that a request has a slot."""
        return statistics.fmean(self.deferred) / self.slots

    def cost(self, symptoms: Symptoms) -> Cost:
        """What waiting is of the time to the first token, where the server counted what reading a prompt takes."""
        reading = work.prefill_share(symptoms)
        requests = None if symptoms.log is None else symptoms.log.requests
        wait_s = None
        if requests is not None and requests.requests:
            wait_s = self.rounds * (requests.prompt_ms + requests.predicted_ms) / requests.requests / 1e3
        return Cost(wait_s, None if reading is None else self.rounds / (self.rounds + reading))


def waiting(symptoms: Symptoms) -> Waiting | Clear | Undecided:
    """Who waits; Clear when nobody did while the server was at work."""
    server, count = symptoms.server, settings.slots(symptoms)
    if server is None or count is None or count.value < 1:
        return Undecided(UNDER_LOAD)
    looks = [look for look in (server.metrics, server.metrics_later) if look is not None]
    deferred = server.deferred or tuple(look.deferred for look in looks if look.deferred is not None)
    if not deferred:
        return Undecided("/metrics: start the server with --metrics")
    busy = [look.processing for look in looks if look.processing is not None]
    if not busy and server.slots is not None:
        busy = [sum(slot.processing for slot in server.slots)]
    seen = Evidence(Source.METRICS, f"requests_deferred {', '.join(map(str, deferred))}")
    if max(deferred) == 0:
        if max(busy, default=0) == 0:
            return Undecided(UNDER_LOAD)
        return Clear(f"no request waits for a slot while {max(busy)} of {count.value} are at work", (seen,))
    if len(server.processing) == len(deferred) >= ENOUGH_LOOKS:
        return _over_time(deferred, server.processing, count, seen)
    return _two_looks(deferred, busy, count, seen)


def _two_looks(
    deferred: tuple[int, ...], busy: list[int], count: settings.Number, seen: Evidence
) -> Waiting | Undecided:
    if min(deferred) == 0 or not busy:
        return Undecided("--watch 60 while requests come in: they waited in one look and not in another")
    at_work = Evidence(Source.METRICS, f"requests_processing {', '.join(map(str, busy))}")
    return Waiting(deferred, min(busy), count.value, (seen, at_work, count.evidence))


def _over_time(
    deferred: tuple[int, ...], processing: tuple[int, ...], count: settings.Number, seen: Evidence
) -> Waiting | Clear:
    """Of many looks: a queue that is gone at once is none, and a slot may just be changing hands in any one of them."""
    at_work = Evidence(Source.METRICS, f"requests_processing {', '.join(map(str, processing))}")
    busy = [busy for busy, waits in zip(processing, deferred, strict=True) if waits]
    found = Waiting(deferred, statistics.median_high(busy), count.value, (seen, at_work, count.evidence))
    if min(deferred) == 0 and found.rounds < BRIEF:
        words = (
            f"requests wait for a moment at most: in {len(busy)} of {len(deferred)} looks, {found.rounds:.2g} per slot"
        )
        return Clear(f"{words} in the mean", found.evidence)
    return found


def room_for_more(symptoms: Symptoms) -> tuple[bool, str, Evidence | None] | None:
    """(Whether more requests could run beside each other, in words why, the number); None: it can't be told."""
    speed, owed = work.user_speed(symptoms), work.owed_speed(symptoms)
    if symptoms.promise is not None and owed is None:
        return True, "no speed is owed to users", None
    if speed is None:
        return None
    if owed is not None:
        return speed.value >= SPARE * owed, f"{speed.value:.0f} tok/s per user, {owed:g} are owed", speed.evidence
    probe = symptoms.probe
    if probe is None or probe.decode_step_s <= 0:
        return None
    alone = 1 / probe.decode_step_s
    if speed.value < HARDLY_SLOWER * alone:
        return None  # slower than alone, but nobody said how slow is too slow
    return True, f"{speed.value:.0f} tok/s per user are almost the {alone:.0f} that one has alone", speed.evidence
