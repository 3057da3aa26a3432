"""Takes off what others put around the lines of a server's log: JSON, pods, times, levels, a router's ports.

Wrappings come together: a router's child in a pod whose lines Docker keeps as JSON, printed by ``kubectl logs
--prefix``. They are taken off from the outside to the inside: the pod, a prefix that is learned, JSON, a prefix inside
of that, the child's port, and JSON that the child itself wrote. What is left are the lines as llama-server prints them,
by the server that they are of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Final, overload

from slotune.llama.log_json import messages, without_colours
from slotune.llama.log_json_forms import Form
from slotune.llama.log_prefix_pieces import PORT
from slotune.llama.log_prefixes import Prefixes
from slotune.llama.log_times import seconds_of

__all__ = ["Stamps", "Unwrapped", "Wrapping", "without_colours"]

_POD = re.compile(rb"\[pod/([^\]/\s]+)/([^\]\s]+)\] ?")
_TIME = re.compile(
    rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?) ?(?:std(?:out|err) [FP] )?"
)
"""In front of a line whose prefix was not learned; containerd says behind it where a line came from."""
_WRAPPED: Final = (b'{"', b"[pod/", b"[]", b"T::", b"::")
"""How the shapes of wrapped lines begin: JSON, a pod, a port, a date and a time, which are signs without digits."""

_JSON, _PODS, _DATE = _TAKEN = (b'{"', b"[p", b"20")
"""How lines begin that are wrapped in what need not be learned."""
_START = itemgetter(slice(2))
LAYERS: Final = 4
"""Prefixes and JSON objects within each other that are taken off."""
_NAMES: Final = 1024
_UNREAD: Final = 200
"""Times of a piece that may have no date, or none with a year, before no further one is read."""
_SAMPLES: Final = 20
"""Lines of a piece that are looked at for a prefix that has changed."""


class Stamps(Sequence[float | None]):
    """Seconds beside each line, worked out when they are asked for: only the first and the last ones are."""

    def __init__(self, written: Sequence[float | bytes | None]) -> None:
        self._written = written

    def __len__(self) -> int:
        return len(self._written)

    @overload
    def __getitem__(self, index: int) -> float | None: ...

    @overload
    def __getitem__(self, index: slice) -> Stamps: ...

    def __getitem__(self, index: int | slice) -> float | Stamps | None:
        if isinstance(index, slice):
            return Stamps(self._written[index])
        written = self._written[index]
        return seconds_of(written) if isinstance(written, bytes) else written

    def __iter__(self) -> Iterator[float | None]:
        return _in_seconds(iter(self._written))

    def __reversed__(self) -> Iterator[float | None]:
        return _in_seconds(reversed(self._written))


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """Lines of one server, in order."""

    lines: Sequence[bytes]
    numbers: Sequence[int]
    """Where each stands in the log, from 1; a message of many lines has the same for each."""
    stamps: Sequence[float | None] | None
    """Seconds of any clock; None: nothing is said of time."""
    size_bytes: int = 0


@dataclass(slots=True)
class _Rows:
    """Lines of all servers, in order, and what is known of each."""

    lines: list[bytes] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    written: list[float | bytes | None] = field(default_factory=list)
    """Times."""
    sizes: list[int] = field(default_factory=list)


class Wrapping:
    """Finds out how a log is wrapped, and unwraps it."""

    def __init__(self) -> None:
        self._prefixes = tuple(Prefixes() for _ in range(LAYERS))
        self._forms: tuple[list[Form], ...] = tuple([] for _ in range(LAYERS + 1))
        self._pods: dict[bytes, str] = {}
        self._children: dict[tuple[str, bytes], str] = {}

    def look(self, lines: Sequence[bytes]) -> bool:
        """Whether it is plain that ``lines`` are wrapped. Call it on all lines in turn."""
        self._look(0, lines)
        ends = (lines[0][:2], lines[-1][:2]) if lines else (b"", b"")
        return self._prefixes[0].any or (ends[0] == ends[1] and ends[0] in (_JSON, _PODS))

    @staticmethod
    def has_any(shapes: Iterable[bytes]) -> bool:
        """Whether any lines of these shapes are wrapped, though it is not plain."""
        return any(shape.startswith(_WRAPPED) for shape in shapes)

    def _look(self, layer: int, lines: Sequence[bytes]) -> None:
        prefixes = self._prefixes[layer]
        prefixes.look(map(_without_pod, lines))
        places = range(0, len(lines), max(1, len(lines) // _SAMPLES))
        other = prefixes.other_from(_without_pod(lines[place]) for place in places)
        if other is not None:
            prefixes.look_anew(map(_without_pod, lines[places[other] :]))

    def unwrap(self, lines: Sequence[bytes], numbers: Sequence[int]) -> dict[str, Unwrapped]:
        """Lines by pod, as ``pod/container``; those that no pod is named for are under an empty name."""
        rows = _Rows(list(lines), [""] * len(lines), list(numbers))
        rows.written = [None] * len(lines)
        rows.sizes = [size + 1 for size in map(len, lines)]
        starts = _starts(rows.lines)
        for layer in range(LAYERS):
            if layer:
                self._look(layer, rows.lines)
                if not self._prefixes[layer].any and starts.isdisjoint(_TAKEN):
                    break
            if self._take_prefixes_off(layer, rows, starts):
                starts = _starts(rows.lines)
            if _JSON in starts:
                rows = _without_json(rows, self._forms[layer])
                starts = _starts(rows.lines)
        if any(start[:1] == b"[" for start in starts):
            rows = _without_json(self._without_ports(rows), self._forms[-1])
        return _by_name(rows)

    def _take_prefixes_off(self, layer: int, rows: _Rows, starts: Set[bytes]) -> bool:
        """Whether any line may have lost something."""
        lines = rows.lines
        if _PODS in starts:
            for index, line in enumerate(lines):
                head, _, text = line.partition(b"] ")
                name = self._pods.get(head) or self._pod(line)
                if name:
                    rows.names[index], lines[index] = name, text
        if self._prefixes[layer].any:
            self._prefixes[layer].take_off(lines, rows.names, rows.written)
        elif _PODS in starts or _DATE in starts:
            for index, line in enumerate(lines):
                if line[:2] == _DATE and (match := _TIME.match(line)):
                    rows.written[index] = match[1]
                    lines[index] = line[match.end() :]
        return self._prefixes[layer].any or _PODS in starts or _DATE in starts

    def _pod(self, line: bytes) -> str:
        match = _POD.match(line)
        if match is None:
            return ""
        name = f"{match[1].decode(errors='replace')}/{match[2].decode(errors='replace')}"
        if len(self._pods) < _NAMES:
            self._pods[match[0].rstrip(b"] ")] = name
        return name

    def _without_ports(self, rows: _Rows) -> _Rows:
        """Each child of a router under its port; the router's own lines keep their name."""
        places = [index for index, line in enumerate(rows.lines) if line[:1] == b"["]
        matches = [(index, match) for index in places if (match := PORT.match(rows.lines[index]))]
        if not matches:
            return rows
        lines, names = list(rows.lines), list(rows.names)
        for index, match in matches:
            lines[index] = lines[index][match.end() :]
            names[index] = self._child(names[index], match[1])
        return _Rows(lines, names, rows.numbers, rows.written, rows.sizes)

    def _child(self, of: str, port: bytes) -> str:
        """The name of the child at ``port`` of the server ``of``, in front of the name of its container."""
        known = self._children.get((of, port))
        if known is None:
            pod, slash, container = of.partition("/")
            known = f"{pod}:{port.decode()}{slash}{container}" if of else f"port {port.decode()}"
            if len(self._children) < _NAMES:
                self._children[of, port] = known
        return known


def _without_pod(line: bytes) -> bytes:
    return line[match.end() :] if (match := _POD.match(line)) else line


def _in_seconds(written: Iterator[float | bytes | None]) -> Iterator[float | None]:
    """Times one by one, until so many could not be read that those of all others are written so too."""
    unread = 0
    for time in written:
        if not isinstance(time, bytes):
            yield time
        elif unread >= _UNREAD:
            yield None
        else:
            seconds = seconds_of(time)
            unread += seconds is None
            yield seconds


def _starts(lines: Sequence[bytes]) -> set[bytes]:
    """How lines begin: which ways of wrapping there can be."""
    return set(map(_START, lines))


def _without_json(rows: _Rows, forms: list[Form]) -> _Rows:
    """The texts of lines that are JSON objects; other lines stay."""
    told = messages(rows.lines, rows.written, forms)
    if told is None:
        return rows
    names = rows.names
    if told.names:
        names = [told.names.get(index, name) for index, name in enumerate(names)]
    out = _Rows(names=names, numbers=rows.numbers, written=told.times, sizes=rows.sizes)
    out.lines = [text for text in told.texts if isinstance(text, bytes)]
    if len(out.lines) == len(rows.lines):
        return out
    several = _Rows()
    columns = zip(told.texts, names, rows.numbers, told.times, rows.sizes, strict=True)
    for text, name, number, time, size in columns:
        for place, line in enumerate([text] if isinstance(text, bytes) else text):
            several.lines.append(line)
            several.names.append(name)
            several.numbers.append(number)
            several.written.append(time)
            several.sizes.append(0 if place else size)
    return several


def _by_name(rows: _Rows) -> dict[str, Unwrapped]:
    names = dict.fromkeys(rows.names)
    if len(names) == 1:
        return {name: _unwrapped(rows) for name in names}
    parts = {name: _Rows() for name in names}
    columns = zip(rows.lines, rows.names, rows.numbers, rows.written, rows.sizes, strict=True)
    for line, name, number, written, size in columns:
        part = parts[name]
        part.lines.append(line)
        part.numbers.append(number)
        part.written.append(written)
        part.sizes.append(size)
    return {name: _unwrapped(part) for name, part in parts.items()}


def _unwrapped(rows: _Rows) -> Unwrapped:
    written = rows.written
    timed = written.count(None) < len(written) and (_has_moments(written) or _has_moments(reversed(written)))
    return Unwrapped(rows.lines, rows.numbers, Stamps(written) if timed else None, sum(rows.sizes))


def _has_moments(written: Iterable[float | bytes | None]) -> bool:
    """Whether one of the first of these times tells a moment, rather than that of some day or year."""
    times = islice((time for time in written if time is not None), _UNREAD)
    return any(seconds is not None for seconds in _in_seconds(times))
