"""One server's lines, as they become its story.

A start goes from the first header of a process to the line that says that the model is loaded: its text is kept, within
bounds, and read as a whole. What a process did since is counted. Each start forgets what was counted before, except how
the process before it ended.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from types import MappingProxyType
from typing import Final

from slotune.llama.build_number import build_of_text
from slotune.llama.failures import Failure
from slotune.llama.log_buffers import closed_lists
from slotune.llama.log_ending import ending_of
from slotune.llama.log_facts import fact_lines
from slotune.llama.log_lines import LogFacts, parse_log
from slotune.llama.log_mixing import MIXED, MOST_TURNS, Mixing
from slotune.llama.log_notes import notes_on
from slotune.llama.log_old_builds import IK_LLAMA, LAST_OLD_S
from slotune.llama.log_pieces import Clock, Excerpt, Piece
from slotune.llama.log_requests import RequestTotals
from slotune.llama.log_story import Line, LogStory, Seen, Topic
from slotune.llama.log_topics import DEBUG, LineKind, Mark, Shapes, quote, quote_debug

__all__ = ["ServerLog"]

START_BYTES: Final = 256 << 10
"""Of a start: its first lines, which say how it came up."""
TAIL_BYTES: Final = 64 << 10
"""Of the last lines, which say how it ended."""

_LATE: Final = (Topic.KERNEL_FALLBACK, Topic.FLASH_ATTENTION_FALLBACK, Topic.SPECULATION_FAILED)
"""What is only said at the first computation, which may be after the server said that it was up."""

_VERBOSITY = re.compile(r"verbosity = (\d{1,3}) \(adjust with")
"""Said at 3 and above; below, and by older builds, the lines themselves must tell."""


class _Since:
    """What was seen since a start."""

    def __init__(self) -> None:
        self.start = Excerpt(START_BYTES, TAIL_BYTES)
        self.tail = Excerpt(0, TAIL_BYTES)
        self.seen: dict[Topic, Seen] = {}
        self.totals = RequestTotals()
        self.level = 0
        self.clock = Clock()
        self.headers: set[str] = set()
        self.came_up = False
        self.loaded_s: float | None = None
        self.old = False
        self.first_line: int | None = None

    @property
    def mixed(self) -> bool:
        return self.totals.taken_twice or self.clock.turns > MOST_TURNS


class ServerLog:
    """Takes one server's lines in order."""

    def __init__(self, shapes: Shapes) -> None:
        self._kinds = shapes
        self._since = _Since()
        self._stage: Mark | None = None
        """The last mark of the start; None before any."""
        self._starts = 0
        self._lines = 0
        self._restarted, self._requests_before = False, 0
        self._earlier: tuple[Failure | None, Line | None, int | None] = (None, None, None)
        self.size_bytes = 0
        self.ours = 0
        """Lines that llama-server wrote."""
        self._of_server = self._of_engine = 0
        self._mixing, self._was_mixed = Mixing(), False

    def take(self, piece: Piece, *, whole: bool = True) -> None:
        """Count the lines of ``piece``. A last line that is not whole may lack digits: it states no fact of a start."""
        kinds, counts = self._kinds, Counter(piece.shapes)
        kinds.learn(counts, piece.lines, piece.shapes)
        marks = {mark for shape in counts if (mark := kinds[shape].mark) is not None}
        if self._up:
            marks -= {Mark.WORK}
        begin = 0
        for index, shape in enumerate(piece.shapes if marks else ()):
            kind = kinds[shape]
            if kind.mark is None or (self._up and kind.mark is Mark.WORK):
                continue
            another = self._begins(kind)
            self._mixing.see(kind, self._stage, begins=another)
            if another or (not self._up and kind.mark in (Mark.WORK, Mark.READY)):
                cut = index + 1 if kind.mark is Mark.READY else index
                self._add(piece.part(begin, cut), whole)
                begin = cut
                if kind.mark is Mark.READY and not another:
                    self._since.loaded_s = self._since.clock.seconds
            if another:
                self._begin()
            self._move(kind)
        self._add(piece.part(begin, len(piece.lines)), whole, counts if begin == 0 else None)

    @property
    def _up(self) -> bool:
        return self._stage in (Mark.READY, Mark.WORK)

    def _begins(self, kind: LineKind) -> bool:
        """Whether a line of this kind is of another process than the lines before it."""
        stage = self._stage
        if kind.mark is Mark.HEADER:
            return stage in (Mark.LOADING, Mark.READY, Mark.WORK, Mark.END) or kind.header in self._since.headers
        if kind.mark is Mark.EARLY:
            return stage in (Mark.LOADING, Mark.READY, Mark.WORK, Mark.END)
        return kind.mark is Mark.DEVICE and stage in (Mark.READY, Mark.WORK, Mark.END)

    def _move(self, kind: LineKind) -> None:
        if kind.mark in (Mark.HEADER, Mark.EARLY, Mark.DEVICE):
            if self._stage is None:
                self._starts += 1
                self._stage = Mark.HEADER
            if kind.header:
                self._since.headers.add(kind.header)
        elif kind.mark in (Mark.SLOTS, Mark.SLEEP) or (self._up and kind.mark is Mark.LOADING):
            return  # a server that slept loads its model again
        else:
            if self._stage is None and kind.mark is Mark.LOADING:
                self._starts += 1  # at low verbosities, and from a router's child, nothing is said before
            self._stage = kind.mark
            self._since.came_up = self._since.came_up or self._up

    def _begin(self) -> None:
        """Forget what an earlier start was, but not how it ended."""
        failure, line = self._failure()
        if failure is not None:
            self._earlier = failure, line, self._starts
        self._was_mixed = self._was_mixed or self._since.mixed
        timings = self._since.totals.timings()
        self._restarted, self._requests_before = True, self._requests_before + (timings.requests if timings else 0)
        self._since, self._stage = _Since(), None

    def _add(self, piece: Piece, whole: bool, counts: Mapping[bytes, int] | None = None) -> None:
        if not piece.lines:
            return
        since, counts = self._since, Counter(piece.shapes) if counts is None else counts
        self._lines += len(piece.lines)
        since.first_line = since.first_line or piece.numbers[0]
        if whole and not self._up:
            since.start.add(self._without_debugging(piece))
        since.tail.add(piece)
        since.clock.look(piece)
        found: dict[Topic, list[bytes]] = {}
        hot = False
        for shape, count in counts.items():
            kind = self._kinds[shape]
            if kind.ours:
                self.ours += count
                self._of_server += count * kind.of_server
                self._of_engine += count * kind.of_engine
                since.old = since.old or kind.old
                since.level = max(since.level, kind.level)
                hot = hot or kind.hot is not None
                for topic in kind.topics:
                    found.setdefault(topic, []).append(shape)
        backwards = piece.shapes[::-1] if found else ()
        for topic, shapes in found.items():
            first, last = _first(piece.shapes, shapes), len(backwards) - 1 - _first(backwards, shapes)
            show = quote_debug if topic is Topic.DEBUG_LINE else quote
            ends = [Line(piece.numbers[index], show(piece.lines[index])) for index in (first, last)]
            self._see(topic, sum(counts[shape] for shape in shapes), *ends)
        if hot:
            self._add_up(piece)

    def _without_debugging(self, piece: Piece) -> Piece:
        """A start at ``-lv 5`` names each tensor several times; what the other lines say is all that is read."""
        if not any(self._kinds[shape].level == DEBUG for shape in set(piece.shapes)):
            return piece
        places = [index for index, shape in enumerate(piece.shapes) if self._kinds[shape].level != DEBUG]
        lines, shapes = ([of[index] for index in places] for of in (piece.lines, piece.shapes))
        return Piece(lines, shapes, [piece.numbers[index] for index in places], None)

    def _add_up(self, piece: Piece) -> None:
        totals = self._since.totals
        hot = list(map(self._kinds.hot.get, piece.shapes))
        totals.take(zip(compress(piece.numbers, hot), compress(piece.lines, hot), filter(None, hot), strict=True))
        for number, line in totals.truncated:
            quoted = Line(number, quote(line))
            self._see(Topic.TRUNCATED, 1, quoted, quoted)
        totals.truncated.clear()

    def _see(self, topic: Topic, count: int, first: Line, last: Line) -> None:
        before = self._since.seen.get(topic)
        self._since.seen[topic] = (
            Seen(count, first, last) if before is None else replace(before, count=before.count + count, last=last)
        )

    def _failure(self) -> tuple[Failure | None, Line | None]:
        return ending_of(self._since.tail.lines(), came_up=self._since.came_up)

    def _facts(self) -> tuple[LogFacts, str, Mapping[str, Line]]:
        lines = self._since.start.lines()
        if not self._since.came_up and "devices" in fact_lines(lines):
            lines = closed_lists(lines)
        known = {number for number, _ in lines}
        seen = (self._since.seen[topic].first for topic in _LATE if topic in self._since.seen)
        late = [line for line in seen if line.number not in known]
        text = "\n".join(line.decode(errors="replace") for _, line in lines)
        facts = parse_log("\n".join([text, *(line.text for line in late)]) + "\n")
        quoted = {name: Line(number, quote(line)) for name, (number, line) in fact_lines(lines).items()}
        for name, topic in (("kernel_fallback", _LATE[0]), ("flash_attention_fallback", _LATE[1])):
            if name not in quoted and topic in self._since.seen:
                quoted[name] = self._since.seen[topic].first
        stated = {name: line for name, line in quoted.items() if not _is_unsaid(getattr(facts, name))}
        return facts, text, MappingProxyType(stated)

    def story(self, source: str) -> LogStory:
        """What the lines so far tell."""
        since = self._since
        if self._was_mixed or since.mixed or self._mixing.certain:
            return self._mixed_story(source)
        facts, text, quoted = self._facts()
        failure, failure_line = self._failure()
        seen = dict(since.seen)
        if (updates := seen.get(Topic.CACHE_UPDATE)) is not None:
            seen[Topic.CACHE_UPDATE] = replace(updates, total_ms=round(since.totals.took_ms, 2))
        timings, build = since.totals.timings(), build_of_text(text)
        is_fork = since.old and (since.clock.latest or 0.0) >= LAST_OLD_S
        if is_fork:
            facts, build = replace(facts, build=facts.build and f"{IK_LLAMA} {facts.build}"), None
        return LogStory(
            source=source,
            facts=facts,
            fact_lines=quoted,
            seen=MappingProxyType(seen),
            requests=timings,
            running=since.totals.running.story() if timings is None else None,
            forgotten=since.totals.forgotten.story(),
            partings=since.totals.partings.story(),
            media=since.totals.media.story(),
            handovers=since.totals.handovers.story(),
            failure=failure,
            failure_line=failure_line,
            build=build,
            starts=self._starts,
            last_start_line=since.first_line if self._restarted else None,
            requests_before=self._requests_before,
            verbosity=self._verbosity(text),
            lines=self._lines,
            size_bytes=self.size_bytes,
            seconds=since.clock.seconds,
            loaded_s=since.loaded_s if self._starts else None,
            earlier_failure=self._earlier[0],
            earlier_failure_line=self._earlier[1],
            earlier_failure_start=self._earlier[2],
            server_lines=self._of_server,
            engine_lines=self._of_engine,
            notes=notes_on(is_old=since.old, is_fork=is_fork, unreadable=since.totals.unreadable),
        )

    def _mixed_story(self, source: str) -> LogStory:
        """Of lines of which nothing may be judged."""
        return LogStory(
            source=source,
            facts=LogFacts(),
            lines=self._lines,
            size_bytes=self.size_bytes,
            server_lines=self._of_server,
            engine_lines=self._of_engine,
            mixed=True,
            notes=(MIXED,),
        )

    def _verbosity(self, text: str) -> int | None:
        if stated := _VERBOSITY.search(text):
            return int(stated[1])
        if self._since.old and self._since.level < DEBUG:
            return None  # that it does not say what builds of today say at this level means nothing
        return self._since.level or None


def _is_unsaid(value: object) -> bool:
    """Whether a fact has the value that it has without a line; 0 layers on a GPU were said."""
    return value is None or value is False or value in ((), {})


def _first(shapes: Sequence[bytes], wanted: Sequence[bytes]) -> int:
    """Where the first of ``wanted`` stands. Few are searched for one by one, which Python does faster."""
    if len(wanted) <= 4:
        return min(shapes.index(shape) for shape in wanted)
    any_of = set(wanted)
    return next(index for index, shape in enumerate(shapes) if shape in any_of)
