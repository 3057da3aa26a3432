"""A look that goes on: the same question again every few seconds, until time is up or a person says that it is enough.

Two moments tell neither a wedge from a long step nor a queue that lasts from one that is gone at once; a minute does.
A question that gets no answer is not asked again: how long it waits in vain is what there is to know.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from slotune.gathering.asking import Answer, Asker, Cause, Silence
from slotune.llama.server_answers import Slot

__all__ = ["Watch", "ask", "ask_again", "still_for"]

_LOOKS: Final = 12
"""After the first two: few enough for a line of evidence, and with 60 s one every 5 s."""
_LEAST_S: Final = 2.0
"""From one look to the next; a server that is looked at more often has work of it."""
_EARLY_S: Final = 0.002
"""A timer may be early by a millisecond, and whoever watches for a minute has waited for one."""
_IN_VAIN_S: Final = 3.0
"""A question that was given up earlier says nothing about the server."""


@dataclass(frozen=True, slots=True)
class Watch:
    """For how long, and who may end it."""

    seconds: float
    begins: Callable[[], None] = lambda: None
    """Hears that the server is one that can be looked at, and that the time runs."""
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: it ends at once, with what is known by then."""

    @property
    def limit_s(self) -> float:
        """For one answer."""
        return self.seconds + _EARLY_S

    def moments(self, began_s: float, second_s: float) -> tuple[float, ...]:
        """When to look again: ``second_s`` after the first look, then evenly, and once more at the end."""
        step_s = max(_LEAST_S, self.seconds / _LOOKS)
        between = [began_s + step_s * number for number in range(1, _LOOKS + 1)]
        ends_s = began_s + self.seconds
        moments = [began_s + second_s, *(one for one in between if one < ends_s - _LEAST_S / 2), ends_s]
        return tuple(sorted(one for one in moments if one <= ends_s))


async def ask(asker: Asker, path: str, limit_s: float, watch: Watch | None) -> Answer | Silence:
    """One question; when the watch is over before it is answered it was silent for so long."""
    if watch is None:
        return await asker.get(path, limit_s)
    began = time.monotonic()
    asking = asyncio.create_task(asker.get(path, limit_s))
    enough = asyncio.create_task(watch.enough.wait())
    try:
        await asyncio.wait((asking, enough), return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        took_s = time.monotonic() - began
        return Silence(path, Cause.SLOW, took_s, f"no answer within {took_s:.3g} s")
    finally:
        for task in (asking, enough):
            task.cancel()
        await asyncio.gather(asking, enough, return_exceptions=True)


async def ask_again(
    asker: Asker, first: Answer | Silence | None, second_s: float, watch: Watch
) -> tuple[Answer | Silence, ...]:
    """What comes to the same question at each moment of the watch; of moments that pass meanwhile, at the last.

    Each question waits for as long as the watch is, at most, so that the whole is over after twice that.

    Args:
        asker: of the server.
        first: what came to it first; nothing is asked where that was no answer that says anything.
        second_s: seconds until it is asked again.
        watch: when, and for how long.
    """
    if not isinstance(first, Answer) or first.status != 200:
        return ()
    moments = watch.moments(first.at_s, second_s)
    found: list[Answer | Silence] = []
    for number, moment in enumerate(moments, 1):
        if moment < time.monotonic() and number < len(moments):
            continue
        if await _ended_before(moment, watch.enough):
            break
        said = await ask(asker, first.path, watch.limit_s, watch)
        if isinstance(said, Answer):
            found.append(said)
            continue
        if not watch.enough.is_set() or said.seconds >= _IN_VAIN_S:
            found.append(said)
        break
    return tuple(found)


def still_for(looks: Sequence[tuple[float, tuple[Slot, ...]]]) -> float | None:
    """Seconds up to the last look for which every slot at work stood at the same token of the same task.

    Args:
        looks: (moment, slots), the first one first.

    Returns:
        0 when no slot is at work; None with less than two looks, or when this build does not say where a slot is.
    """
    if len(looks) < 2:
        return None
    places = [_places(slots) for _, slots in looks]
    if places[-1] is None:
        return None
    if not places[-1]:
        return 0.0
    since = len(looks) - 1
    for before, after in reversed(list(pairwise(range(len(looks))))):
        if places[before] != places[after]:
            break
        since = before
    return looks[-1][0] - looks[since][0]


def _places(slots: tuple[Slot, ...]) -> frozenset[tuple[int, ...]] | None:
    """Slot, task, prompt tokens read and tokens made of all that is at work; None: one of them does not say."""
    places = set()
    for slot in slots:
        if slot.processing:
            place = (slot.id, slot.task, slot.prompt_tokens_processed, slot.decoded)
            known = tuple(one for one in place if one is not None)
            if slot.task is None or len(known) < len(place):
                return None
            places.add(known)
    return frozenset(places)


async def _ended_before(moment: float, enough: asyncio.Event) -> bool:
    while (left_s := moment - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(left_s):
                await enough.wait()
        except TimeoutError:
            continue  # maybe early
        return True
    return enough.is_set()
