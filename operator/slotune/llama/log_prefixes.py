"""Learns what a keeper of logs puts in front of each line: times, levels and names, in whatever order it has them.

The first lines are taken apart piece by piece until what is left begins as a line of llama-server does. The pieces that
most of them have make the pattern for all. So the form of a prefix need not be known, and no part of a line of llama-
server's own, such as its ``0.01.234.567 I``, is ever taken for one: what is left must begin with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from slotune.llama.log_topics import classify

__all__ = ["PORT", "Prefixes", "begins", "in_seconds", "is_stamped", "seconds_of"]

PORT = re.compile(rb"\[ {0,3}(\d{2,5})\] ?")
"""llama-server as a router passes its children's lines on, each with the child's port in front."""

_ZONE = rb"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)(?![\w:]))?"
_FRACTION = rb"(?:[.,]\d{1,9})?"
_CLOCK = rb"\d{1,2}:\d\d:\d\d" + _FRACTION
_TIMES: Final = (
    rb"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?\d{4}[-/]\d\d[-/]\d\d(?:[T _]+" + _CLOCK + _ZONE + rb")?",
    rb"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d " + _CLOCK + rb"(?: \d{4}(?![\d/-]))?",
    rb"\d{1,2}[-/.](?:\d\d|[A-Z][a-z]{2})[-/.]\d{4}[T :]+" + _CLOCK + rb"(?: [+-]\d{4})?",
    rb"\d\d[-/]\d\d[T ]" + _CLOCK,
    rb"[IWEF]\d{4} " + _CLOCK,
    rb"\d{1,3}:\d\d\.\d{1,3}(?= )",
    _CLOCK + rb"(?: ?[AP]M)?(?![\w:])",
    rb"\d{1,10}\.\d{6}(?=\])",
    rb"(?:\d{10}(?:\.\d{1,9})?|\d{13})(?=[\],\t ])",
    rb"@[0-9a-f]{24}",
)
_LEVEL: Final = (
    rb"(?i:INFO(?:RMATION)?|NOTICE|WARN(?:ING)?|ERR(?:OR)?|DEBUG|TRACE|FATAL|CRIT(?:ICAL)?|INF|WRN|DBG|TRC)(?![\w.-])"
)
_BYTE: Final = rb"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_NAME: Final = (
    rb"(?:(?=[\d./@+-]*[A-Za-z_])[A-Za-z0-9_/][\w./@+-]*(?:::[\w./@+-]+)*|"
    + _BYTE
    + rb"(?:\."
    + _BYTE
    + rb"){3}(?![\d.:]))"
)
"""Something with a letter, or an address: of figures alone are the numbers of lines, and times of all kinds."""
_BORDER: Final = "(?:\u2502|\u2503|\u2551)".encode()
"""At both sides of a window of a terminal."""
_KINDS: Final = {
    "time": b"|".join(_TIMES),
    "level": _LEVEL,
    "stream": rb"std(?:out|err)(?: [FP])?(?=[ \t\]:|])",
    "place": rb"[\w./\\-]+\.(?:py|go|cc|cpp|c|rs|js|ts|java):\d+(?![\w.])",
    "number": rb"#?\d{1,7}(?=[ \t\])|,]|:(?!\d\d:\d\d))",
    "labels": rb'\{\w+="[^{}]*"\}',
    "process": rb"[A-Za-z0-9_/][\w./@+-]*\[\d+\]",
    "name": _NAME + rb"(?=[ \t\]):|,>\[])",
    "figures": rb"\d[\d./:+-]*(?=[ \t\])|,>\[])",
    "bar": b"(?:" + _BORDER + rb"|[>|])(?=[ \t]|\Z)",
}
_GROUPS: Final = {
    "time": rb"(" + _KINDS["time"] + rb")",
    "process": rb"([A-Za-z0-9_/][\w./@+-]*)\[\d+\]",
    "name": b"(" + _NAME + b")",
    "labels": rb"(" + _KINDS["labels"] + rb")",
    "indent": rb"([ \t]{2,})",
}
"""What of a piece is wanted; of others nothing is."""
_PIECE = re.compile(
    rb"(?P<before>(?:[A-Za-z_@.]+=)?[\[(<\"']? *)(?:"
    + b"|".join(rb"(?P<%s>%s)" % (kind.encode(), pattern) for kind, pattern in _KINDS.items())
    + rb")(?P<after> *[\])>\"']?)(?P<separator>(?:[ \t]*[:|,;>-]+(?=[ \t\"\[])|:)?[ \t]*)"
)
_QUOTE = re.compile(rb'(?:[A-Za-z_@.]+=)?"')
_QUOTED = re.compile(rb'((?:[^"\\]++|\\.|"")*)')
_COLOUR = re.compile(rb"\\(?:u001[bB]|x1[bB]|033|e)\[[0-9;:?]*[A-Za-z]")
"""As it is written in quotes."""
_ESCAPED = re.compile(rb"\\(.)")
_ESCAPES: Final = {b"t": b"\t", b"n": b"", b"r": b""}
_STAMPED = re.compile(rb"\d+\.\d\d\.\d{3}\.\d{3} [IWEDT] ")
"""How llama-server's own lines begin with ``--log-timestamps`` and ``--log-prefix``, which are the default."""
_DATED = re.compile(rb"\[\d{4}-")
_LABEL = re.compile(rb'\b(?:pod|pod_name|container|container_name)="([^"]*)"')
_BLANKS = re.compile(rb"[ \t]+")
_INDENT = re.compile(rb"[ \t]{2,}(?=\S)")
_BORDER_BEHIND = re.compile(rb"[ \t]*" + _BORDER + rb"[ \t]*\Z")

_UNMARKED: Final = frozenset({"name", "number", "figures", "indent"})
"""Pieces that a line of llama-server's could have in front by chance."""
_PIECES: Final = 9
_LOOKED_INTO: Final = 400
"""Bytes of a line in which a prefix ends."""
_VOTES: Final = 200
"""Lines of llama-server's, wrapped or not, that decide for the rest of the log."""
_SEARCHED: Final = 40_000
"""Lines of others among which its lines are looked for."""
_FORMS: Final = 3
"""Forms that one prefix has, such as with and without a name."""
_SURE: Final = 0.8
"""Share of its lines that must have the same kind of prefix before the names in it tell servers apart."""
_SOME: Final = 0.1
"""Share from which on a prefix is taken off the lines that have it."""
_NAMES: Final = 1024
_LATEST: Final = 1e11
"""Seconds of the year 5138; milliseconds of 1973."""

_ISO = re.compile(
    rb"(\d{4})[-/](\d\d)[-/](\d\d)[T _]+(\d{1,2}:\d\d:\d\d)(?:[.,](\d{1,9}))? ?(Z|UTC|GMT|[+-]\d\d:?\d\d)?"
)
_EPOCH = re.compile(rb"\d{10}(?:\.\d{1,9})?\Z|\d{13,19}\Z")


def seconds_of(time: bytes) -> float | None:
    """Seconds since 1970, or None: it has no date with a year."""
    if match := _ISO.search(time):
        year, month, day, clock, fraction, zone = (group.decode() if group else "" for group in match.groups())
        offset = "+00:00" if zone in ("", "Z", "UTC", "GMT") else zone
        try:
            moment = datetime.fromisoformat(f"{year}-{month}-{day}T{clock.zfill(8)}{offset}")
        except ValueError:
            return None
        return moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    if match := _EPOCH.match(time):
        return in_seconds(float(match[0]))
    return None


def in_seconds(time: float) -> float:
    """``time`` since 1970 in seconds, which keepers also write in thousandths, millionths and billionths of one."""
    while time >= _LATEST:
        time /= 1000.0
    return time


@dataclass(frozen=True, slots=True)
class _Piece:
    """One piece of a prefix, with what stands around it; runs of blanks are one."""

    before: bytes
    kind: str
    after: bytes
    separator: bytes


@dataclass(frozen=True, slots=True)
class _Form:
    """What finds a prefix of one form."""

    pattern: re.Pattern[bytes]
    time: int
    """Number of its group; 0: there is none."""
    names: tuple[int, ...]
    """Numbers of the groups, a process before its host; empty: the names do not tell servers apart."""
    quoted: bool
    bar: bool
    """Whether it has a bar, so that one may end the line."""


class Prefixes:
    """Finds out which prefix the lines have, and takes it off."""

    def __init__(self) -> None:
        self._votes: Counter[tuple[_Piece, ...]] = Counter()
        self._blanks: dict[tuple[_Piece, ...], set[int]] = {}
        """How many blanks end a prefix; lines of llama-server's begin with some, too."""
        self._looked = 0
        self._forms: tuple[_Form, ...] = ()
        self._last = ""
        self._names: dict[tuple[bytes, ...], str] = {}

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._forms)

    def look(self, lines: Iterable[bytes]) -> None:
        """Learn from lines; does nothing once enough were seen."""
        total = self._votes.total()
        if total >= _VOTES or self._looked >= _SEARCHED:
            return
        before = total
        for line in lines:
            self._looked += 1
            if not line or line[:2] == b'{"':
                continue
            found = _taken_apart(line[:_LOOKED_INTO])
            if found is not None:
                pieces, blanks = found
                if not pieces and line[:1] in (b" ", b"\t"):
                    continue  # as it is printed, or indented like the others: it does not tell
                self._votes[pieces] += 1
                self._blanks.setdefault(pieces, set()).add(blanks)
                total += 1
            if total >= _VOTES or self._looked >= _SEARCHED:
                break
        if total != before:
            self._decide(total)

    def _decide(self, total: int) -> None:
        seen = [(pieces, votes) for pieces, votes in self._votes.most_common(_FORMS + 1) if pieces]
        kept = [
            (pieces, votes)
            for pieces, votes in seen
            if votes >= (_SOME if _is_marked(pieces) else _SURE) * total and (votes > 1 or _is_marked(pieces))
        ]
        named = sum(votes for _, votes in kept) >= _SURE * total
        self._forms = tuple(_form(pieces, self._blanks[pieces], named=named) for pieces, _ in kept)

    def take_off(self, lines: list[bytes], names: list[str], times: list[float | bytes | None]) -> None:
        """Leave of ``lines`` what is behind their prefixes, and put down the times, and names where there are none.

        A line without a prefix is of the server whose line was before it.
        """
        forms, known = self._forms, self._names
        for index, line in enumerate(lines):
            for form in forms:
                if match := form.pattern.match(line):
                    break
            else:
                names[index] = names[index] or self._last
                continue
            text = line[match.end() :]
            if form.bar:
                text = _BORDER_BEHIND.sub(b"", text)
            lines[index] = _unquoted(text) if form.quoted else text
            if form.time:
                times[index] = match[form.time]
            if form.names:
                key = match.group(0, *form.names)[1:]
                self._last = known.get(key) or self._name(key)
                names[index] = names[index] or self._last

    def _name(self, key: tuple[bytes, ...]) -> str:
        name = b"/".join(filter(None, map(_named, key))).decode(errors="replace")
        if len(self._names) < _NAMES:
            self._names[key] = name
        return name


def _named(text: bytes) -> bytes:
    """A name, or that of the pod and the container among labels."""
    return b"/".join(_LABEL.findall(text)) if text[:1] == b"{" else text


def begins(line: bytes) -> bool:
    """Whether ``line`` is one of llama-server's, with or without a prefix, rather than what goes on from one."""
    return _taken_apart(line[:_LOOKED_INTO]) is not None


def is_stamped(line: bytes) -> bool:
    """Whether ``line`` has what llama-server puts in front of its lines today."""
    return _STAMPED.search(line[:_LOOKED_INTO]) is not None


def _taken_apart(line: bytes, *, inside: bool = False) -> tuple[tuple[_Piece, ...], int] | None:
    """The pieces in front of a line of llama-server's, and the blanks behind them; None: it is not such a line."""
    pieces: list[_Piece] = []
    place = blanks = 0
    for _ in range(_PIECES):
        if _is_own(line[place:], inside=inside or place > 0):
            return tuple(pieces), blanks
        if not pieces and (indent := _INDENT.match(line)) and _is_own(line[indent.end() :], inside=True):
            return (_Piece(b"", "indent", b"", b""),), 0
        match = _PIECE.match(line, place)
        if match is None or (b'"' in match["before"] and b'"' not in match["after"]):
            quote = _QUOTE.match(line, place)
            if quote is None or not pieces or _taken_apart(_unquoted(line[quote.end() :]), inside=True) is None:
                return None
            return (*pieces, _Piece(quote[0], "quote", b"", b"")), 0
        kind = next(kind for kind in _KINDS if match[kind] is not None)
        before, after, separator = (_BLANKS.sub(b" ", match[part]) for part in ("before", "after", "separator"))
        pieces.append(_Piece(before, kind, after, separator))
        blanks = len(match["separator"]) - len(match["separator"].rstrip(b" \t"))
        place = match.end()
    return None


def _is_own(text: bytes, *, inside: bool) -> bool:
    """Whether ``text`` begins as a line of llama-server's does, or of its child's; ``inside`` of a prefix also JSON."""
    if port := PORT.match(text):
        text = text[port.end() :]
    if text[:2] == b'{"':
        return inside or port is not None
    if _STAMPED.match(text):
        return True
    return not _DATED.match(text) and not _STAMPED.search(text) and classify(text).ours


def _is_marked(pieces: Sequence[_Piece]) -> bool:
    """Whether no line of llama-server's could have this in front by chance: it is more than words."""
    return any(piece.kind not in _UNMARKED or piece.before or piece.after for piece in pieces)


def _form(pieces: Sequence[_Piece], blanks: set[int], *, named: bool) -> _Form:
    pattern = b""
    times: list[int] = []
    names: list[tuple[bool, int]] = []
    groups = 0
    for index, piece in enumerate(pieces):
        kind = _GROUPS.get(piece.kind) or b"(?:" + _KINDS.get(piece.kind, b"") + b")"
        if piece.kind in _GROUPS:
            groups += 1
            if piece.kind == "time":
                times.append(groups)
            elif piece.kind != "indent":
                names.append((piece.kind != "process", groups))
        separator = _any_blanks(piece.separator)
        if index == len(pieces) - 1 and piece.separator[-1:] in (b" ", b"\t"):
            separator = _any_blanks(piece.separator[:-1]) + _last_blanks(blanks)
        pattern += _any_blanks(piece.before) + kind + _any_blanks(piece.after) + separator
    order = tuple(group for _, group in sorted(names)) if named else ()
    found = re.compile(pattern)
    bar = any(piece.kind == "bar" for piece in pieces)
    return _Form(found, times[0] if times else 0, order, pieces[-1].kind == "quote", bar)


def _any_blanks(text: bytes) -> bytes:
    return b"[ \\t]+".join(map(re.escape, text.split(b" ")))


def _last_blanks(blanks: set[int]) -> bytes:
    """One if all have one, so that what is left may begin with more, or any number; an empty line may have none."""
    return rb"(?:[ \t]|\Z)" if blanks == {1} else rb"(?:[ \t]+|\Z)"


def _unquoted(text: bytes) -> bytes:
    """``text`` to the end of the quotes that were opened before it."""
    end = text.find(b'"')
    if b"\\" not in text and text[end + 1 : end + 2] != b'"':
        return text if end < 0 else text[:end]
    match = _QUOTED.match(text)
    inner = match[1] if match else text
    if b"\\" not in inner and b'"' not in inner:
        return inner
    if b'""' in inner:  # the way of CSV, which leaves backslashes alone
        return inner.replace(b'""', b'"')
    inner = _COLOUR.sub(b"", inner)
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), inner)
