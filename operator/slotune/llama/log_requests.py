"""What a server's log says about its requests, added up as the lines go by.

llama-server prints the lines of one request one after the other, from one thread: ``prompt eval time``, ``eval time``,
the draft's, ``stop processing``. The last has the length of what is then in the slot, so what was taken from the cache
is that less what was computed, less what was generated but for its last token, which is never evaluated. (Equal to
``cache_n`` of the answers of build 11549.) Builds from late 2024 into 2025 print ``stop processing`` first, and those
before the lines of several requests among each other, each with its slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from slotune.llama.log_busy import MOST_SLOTS, BusySlots
from slotune.llama.log_forgotten import FORGETTING, ForgottenTotals
from slotune.llama.log_handovers import HandoverTotals
from slotune.llama.log_media import MediaTotals
from slotune.llama.log_old_builds import slot_of
from slotune.llama.log_partings import PartingTotals
from slotune.llama.log_running import RunningSpeed
from slotune.llama.log_speeds import SpeedTotals
from slotune.llama.log_story import Line, RequestTimings
from slotune.llama.log_topics import Hot, quote
from slotune.llama.log_turns import TurnTotals

__all__ = ["Event", "RequestTotals"]

Event = tuple[int, bytes, Hot]
"""Number of the line, the line, and what it has."""

_NEAR: Final = 40
"""Lines, of other pods too, between what one request prints at once."""

_TIME = re.compile(rb"eval time += +(\d{1,15}\.\d\d) ms / +(\d{1,15}) ")
_STOP = re.compile(rb"n_(?:tokens|past) = (\d{1,15}), truncated = (\d)")
_RELEASED = re.compile(rb" n_past=(\d{1,15}) .*truncated=(true|false)")
_TASK = re.compile(rb"task (-?\d+) \|")
_DRAFT = re.compile(rb"\( *(\d{1,15}) accepted / +(\d{1,15}) generated")
_TOOK = re.compile(rb" took (\d{1,15}\.\d\d) ms")
_UNKEPT = re.compile(rb" n_past=([1-9]\d{0,14}) .*\bn_cache_tokens=(\d{1,15})\b")

_PARTS: Final = {f"{part / 1000:.3f}".encode(): max(0.0, part / 1000 - 0.0005) for part in range(1001)}
"""Part of a prompt as it is printed, rounded, to what it is at least."""

_WORK, _PROMPT, _GENERATION, _STOP_LINE = Hot.WORK, Hot.PROMPT, Hot.GENERATION, Hot.STOP
_PICK, _PICK_OLDEST, _OLD, _RUNNING = Hot.PICK, Hot.PICK_OLDEST, Hot.OLD, Hot.RUNNING
_BEGIN, _READING = Hot.BEGIN, Hot.READING


class RequestTotals:
    """Requests of one server since its last start."""

    def __init__(self) -> None:
        self._requests = 0
        self._prompt_tokens, self._prompt_ms = 0, 0.0
        self._predicted_tokens, self._predicted_ms = 0, 0.0
        self._cached: int | None = None
        self._drafted = self._accepted = 0
        self._pick: bytes | None = None
        """The line that says which part of the next request's prompt its slot holds."""
        self._picks: dict[bytes, bytes | None] = {}
        """Slot to that line, of the request in it."""
        self._held = 0
        self._speeds, self._busy = SpeedTotals(), BusySlots()
        self._slowest = -1.0
        self._example: Line | None = None
        self._slowest_beside = -1.0
        self._example_beside: Line | None = None
        self._prompt: tuple[float, int] | None = None
        """Of the request whose lines are being read: milliseconds and tokens of its prompt."""
        self._computed: int | None = None
        """Its tokens that are not from the cache, once both times were read."""
        self._read = 0
        """Those of its prompt."""
        self._stopped: tuple[int, int, bytes] | None = None
        """Number, length and task of a ``stop processing`` whose times may follow."""
        self._length: int | None = None
        """What the last ``stop processing`` said of the request whose times are being read."""
        self._stops_first: bool | None = None
        """Whether this build prints it before the times; None: nothing told yet."""
        self._computed_by_slot: dict[bytes, int] = {}
        self._released = self._unkept = 0
        self._unkept_line: Line | None = None
        self.forgotten, self.handovers, self.partings = ForgottenTotals(), HandoverTotals(), PartingTotals()
        self.running, self.media = RunningSpeed(), MediaTotals()
        self.turns = TurnTotals()
        self.took_ms = 0.0
        """Of updates of the prompt cache."""
        self.unreadable = 0
        """Lines with a time that is no number."""
        self.truncated: list[tuple[int, bytes]] = []
        """Lines, with their numbers, of requests that lost part of their prompt; whoever reads them clears the list."""

    def take(self, events: Iterable[Event]) -> None:
        """Add up lines, in the order in which they were written."""
        busy, pick = self._busy, self._pick
        for number, line, hot in events:
            if hot is _GENERATION:
                self._take_generation(line)
            elif hot is _PROMPT:
                self._take_prompt(number, line)
            elif hot is _STOP_LINE:
                slot = _slot(line)
                busy.end(slot)
                self.turns.end(slot)
                self._take_stop(number, line, slot)
            elif hot is _PICK:
                pick = line
                self.handovers.pick(number, line)
            elif hot is _WORK:
                slot = _slot(line)
                self._picks[slot], pick = pick, None
                self._begin(slot)
                self.turns.launch(number, line, slot)
                self.handovers.launch(number, line, slot)
            elif hot is _PICK_OLDEST:
                self.handovers.pick(number, line)
            elif hot is _OLD:
                self._take_old(number, line)
            elif hot is _BEGIN:
                self.turns.begin(_slot(line))
            else:
                self._take_other(number, line, hot)
        self._pick = pick
        self._speeds.settle()

    @property
    def taken_twice(self) -> bool:
        """Whether a slot was often given work while it worked: lines of two servers."""
        return self._busy.taken_twice

    def _begin(self, slot: bytes) -> None:
        self._busy.begin(slot)
        self._computed = self._stopped = None

    def _take_old(self, number: int, line: bytes) -> None:
        slot = slot_of(line)
        if b"prompt eval time" in line:
            self._take_prompt(number, line)
        elif b"eval time" in line:
            self._take_generation(line)
            if self._computed is not None and len(self._computed_by_slot) < MOST_SLOTS:
                self._computed_by_slot[slot] = self._computed
            self._computed = None
        elif b"is processing" in line:
            self._begin(slot)
            self.turns.launch(number, line, slot)
            self._computed_by_slot.pop(slot, None)
        else:
            self._busy.end(slot)
            computed, match = self._computed_by_slot.pop(slot, None), _RELEASED.search(line)
            if kept := _UNKEPT.search(line):
                self._released += 1
                if not int(kept[2]):
                    self._unkept += 1
                    self._unkept_line = Line(number, quote(line))
            if match is not None and match[2] == b"true":
                self.truncated.append((number, line))
            elif match is not None and computed is not None:
                self._cached = (self._cached or 0) + max(0, int(match[1]) - computed)

    def _take_other(self, number: int, line: bytes, hot: Hot) -> None:
        if hot is _READING or (hot is _RUNNING and b"prompt processing," in line):
            self.turns.read(number, line, _slot(line))
        if hot is _RUNNING:
            self.running.take(number, line)
        elif hot in FORGETTING:
            self.forgotten.take(number, line, hot)
        elif hot is Hot.PARTED:
            self.partings.take(number, line)
        elif hot is Hot.DRAFT and (match := _DRAFT.search(line)):
            self._accepted += int(match[1])
            self._drafted += int(match[2])
        elif hot is Hot.MEDIA:
            self.media.take(number, line)
        elif hot is Hot.TOOK and (match := _TOOK.search(line)):
            self.took_ms += float(match[1])

    def _take_prompt(self, number: int, line: bytes) -> None:
        match = _TIME.search(line)
        if match is None:
            self._leave_out()
            return
        ms, tokens = float(match[1]), int(match[2])
        self._prompt, self._computed, self._length = (ms, tokens), None, None
        if self._stopped is not None:
            self._follow_stop(number, line, *self._stopped)
        if ms > self._slowest:
            self._slowest, self._example = ms, Line(number, quote(line))
        if ms > self._slowest_beside and (self._busy.most or 0) > 1 and self._busy.had_others(_slot(line)):
            self._slowest_beside, self._example_beside = ms, Line(number, quote(line))

    def _follow_stop(self, number: int, line: bytes, stopped_at: int, length: int, task: bytes) -> None:
        """Times that come right behind a ``stop processing`` without times of its own are those of its request."""
        self._stopped = None
        named = _TASK.search(line)
        if self._stops_first is None and number - stopped_at <= _NEAR and (named is None or named[1] == task):
            self._stops_first = True
        if self._stops_first:
            self._length = length

    def _take_generation(self, line: bytes) -> None:
        match, prompt = _TIME.search(line), self._prompt
        if match is None:
            self._leave_out()
            return
        if prompt is None:
            return
        ms, tokens = float(match[1]), int(match[2])
        prompt_ms, prompt_tokens = prompt
        self._prompt = None
        self._computed, self._read = prompt_tokens + (tokens - 1 if tokens else 0), prompt_tokens
        if self._length is not None:
            self._take_cached(self._length - self._computed, prompt_tokens, _slot(line))
            self._computed = self._length = None
        self._requests += 1
        self._prompt_ms += prompt_ms
        self._prompt_tokens += prompt_tokens
        self._predicted_ms += ms
        self._predicted_tokens += tokens
        self._speeds.add(prompt, (ms, tokens), with_media=self.media.is_new)
        self.media.is_new = False

    def _leave_out(self) -> None:
        """What the line belongs to: a request whose time is ``nan``, say."""
        self.unreadable += 1
        self._prompt = self._computed = self._length = self._stopped = None

    def _take_cached(self, cached: int, computed: int, slot: bytes) -> None:
        """Of one request's prompt; less than nothing is none."""
        cached = max(0, cached)
        self._cached = (self._cached or 0) + cached
        pick = self._picks.get(slot)
        if pick is None:
            return
        start = pick.find(b" = ") + 3
        again = int(_PARTS.get(pick[start : start + 5], 0.0) * (cached + computed)) - cached
        if again > 0:
            # The last token of a prompt is computed in any case: the next one comes out of it.
            self._held += again if again < computed else computed - 1

    def _take_stop(self, number: int, line: bytes, slot: bytes) -> None:
        match = _STOP.search(line)
        if match is None:
            return
        computed, self._stopped = self._computed, None
        if match[2] != b"0":
            self.truncated.append((number, line))
        elif computed is not None and not self._stops_first:
            self._stops_first = False
            self._take_cached(int(match[1]) - computed, self._read, slot)
        else:
            named = _TASK.search(line)
            self._stopped = number, int(match[1]), named[1] if named else b""
        self._computed = None

    def timings(self) -> RequestTimings | None:
        """What they add up to; None without a finished request."""
        if not self._requests:
            return None
        speeds = self._speeds
        return RequestTimings(
            requests=self._requests,
            prompt_tokens=self._prompt_tokens,
            prompt_ms=round(self._prompt_ms, 2),
            predicted_tokens=self._predicted_tokens,
            predicted_ms=round(self._predicted_ms, 2),
            cached_tokens=self._cached,
            prefill_tokens_per_s=speeds.prefill,
            decode_tokens_per_s=speeds.decode,
            most_busy_slots=self._busy.most,
            example=self._example,
            example_beside=self._example_beside,
            drafted_tokens=self._drafted,
            accepted_tokens=self._accepted,
            long_prompt_tokens=speeds.long_tokens,
            long_prompt_ms=round(speeds.long_ms, 2),
            first_prompt=speeds.first,
            held_tokens=self._held,
            released=self._released,
            unkept=self._unkept,
            unkept_line=self._unkept_line,
            prompt_ms_spread=speeds.prompt_ms_spread,
            prompt_tokens_spread=speeds.prompt_tokens_spread,
            turns=self.turns.story(),
        )


def _slot(line: bytes) -> bytes:
    start = line.find(b"id ") + 3
    return line[start : start + 3]  # as printed: two digits and a blank, or three digits
