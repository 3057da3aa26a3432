"""Takes apart what stands in front of a line of llama-server's: times, levels, names, numbers, and what is around them.

Piece by piece, until what is left begins as a line of llama-server's does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slotune.llama.log_topics import classify

__all__ = [
    "BORDER",
    "GROUPS",
    "KINDS",
    "LOOKED_INTO",
    "PORT",
    "Piece",
    "begins",
    "is_marked",
    "is_stamped",
    "taken_apart",
    "unquoted",
]

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
BORDER: Final = "(?:\u2502|\u2503|\u2551)".encode()
"""At both sides of a window of a terminal."""
KINDS: Final = {
    "time": b"|".join(_TIMES),
    "level": _LEVEL,
    "stream": rb"std(?:out|err)(?: [FP])?(?=[ \t\]:|])",
    "place": rb"[\w./\\-]+\.(?:py|go|cc|cpp|c|rs|js|ts|java):\d+(?![\w.])",
    "number": rb"#?\d{1,7}(?=[ \t\])|,]|:(?!\d\d:\d\d))",
    "labels": rb'\{\w+="[^{}\n]*"\}',
    "process": rb"[A-Za-z0-9_/][\w./@+-]*\[\d+\]",
    "name": _NAME + rb"(?=[ \t\]):|,>\[])",
    "figures": rb"\d[\d./:+-]*(?=[ \t\])|,>\[])",
    "bar": b"(?:" + BORDER + rb"|[>|])(?=[ \t]|$)",
}
GROUPS: Final = {
    "time": rb"(" + KINDS["time"] + rb")",
    "process": rb"([A-Za-z0-9_/][\w./@+-]*)\[\d+\]",
    "name": b"(" + _NAME + b")",
    "labels": rb"(" + KINDS["labels"] + rb")",
    "indent": rb"([ \t]{2,})",
}
"""What of a piece is wanted; of others nothing is."""
_PIECE = re.compile(
    rb"(?P<before>[ \t]*+(?:[A-Za-z_@.]+=)?[\[(<\"']? *)(?:"
    + b"|".join(rb"(?P<%s>%s)" % (kind.encode(), pattern) for kind, pattern in KINDS.items())
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
_BLANKS = re.compile(rb"[ \t]+")
_INDENT = re.compile(rb"[ \t]{2,}(?=\S)")

_UNMARKED: Final = frozenset({"name", "number", "figures", "indent"})
"""Pieces that a line of llama-server's could have in front by chance."""
_PIECES: Final = 9
LOOKED_INTO: Final = 400
"""Bytes of a line in which a prefix ends."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a prefix, with what stands around it; runs of blanks are one."""

    before: bytes
    kind: str
    after: bytes
    separator: bytes


def begins(line: bytes) -> bool:
    """Whether ``line`` is one of llama-server's, with or without a prefix, rather than what goes on from one."""
    return taken_apart(line[:LOOKED_INTO]) is not None


def is_stamped(line: bytes) -> bool:
    """Whether ``line`` has what llama-server puts in front of its lines today."""
    return _STAMPED.search(line[:LOOKED_INTO]) is not None


def taken_apart(line: bytes, *, inside: bool = False) -> tuple[tuple[Piece, ...], int] | None:
    """The pieces in front of a line of llama-server's, and the blanks behind them; None: it is not such a line."""
    pieces: list[Piece] = []
    place = blanks = 0
    for _ in range(_PIECES):
        if _is_own(line[place:], inside=inside or place > 0):
            return tuple(pieces), blanks
        if not pieces and (indent := _INDENT.match(line)) and _is_own(line[indent.end() :], inside=True):
            return (Piece(b"", "indent", b"", b""),), 0
        match = _PIECE.match(line, place)
        if match is None or (b'"' in match["before"] and b'"' not in match["after"]):
            quote = _QUOTE.match(line, place)
            if quote is None or not pieces or taken_apart(unquoted(line[quote.end() :]), inside=True) is None:
                return None
            return (*pieces, Piece(quote[0], "quote", b"", b"")), 0
        kind = next(kind for kind in KINDS if match[kind] is not None)
        before, after, separator = (_BLANKS.sub(b" ", match[part]) for part in ("before", "after", "separator"))
        pieces.append(Piece(before, kind, after, separator))
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


def is_marked(pieces: Sequence[Piece]) -> bool:
    """Whether no line of llama-server's could have this in front by chance: it is more than words."""
    return any(piece.kind not in _UNMARKED or piece.before or piece.after for piece in pieces)


def unquoted(text: bytes) -> bytes:
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
