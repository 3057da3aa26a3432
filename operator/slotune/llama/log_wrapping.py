"""Takes off what others put around the lines of a server's log: JSON, pods, times.

``kubectl logs --prefix``, stern, Docker's files, containerd's files, Compose, journald, llama-server as a router and
its own ``--log-jsonl`` each wrap a line in their way, and some of them together. What is left are the lines as llama-
server prints them, by the server that they are of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from slotune.llama.log_old_builds import as_old_line

__all__ = ["Unwrapped", "Wrapping", "without_colours"]

_COLOUR = re.compile(rb"\x1b\[[0-9;:?]*[A-Za-z]")

_POD = re.compile(rb"\[pod/([^\]/\s]+)/([^\]\s]+)\] ?")
_TIME = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)? ?")
_PORT = re.compile(rb"\[(\d{4,5})\] ?")
"""llama-server as a router passes its children's lines on, each with the child's port in front."""
_LEVEL = re.compile(rb"\[?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|TRACE)\]?:? +")
"""What a program that keeps logs writes behind the time."""
_WRAPPED: Final = (b'{"', b"[pod/", b"[]", b"T::", b"::")
"""How the shapes of wrapped lines begin: JSON, a pod, a date and a time, which are signs without their digits."""
_CRI = re.compile(rb"(?:stdout|stderr) [FP] ")
_STERN = re.compile(rb"([a-z0-9][a-z0-9.-]*-[a-z0-9.-]*[a-z0-9]) ([a-z0-9][a-z0-9-]*) (?=\S| )")
_COMPOSE = re.compile(rb"([A-Za-z0-9][\w.-]*) +\| ")
_SYSLOG = re.compile(rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ ([\w.@-]+)\[\d+\]: ")
_NAMED: Final = (_STERN, _COMPOSE, _SYSLOG)

_SURE: Final = 0.8
"""Share of the first lines that must have the same kind of name in front before it is taken for one."""
_LOOKED_AT: Final = 200

_NAMES: Final = 1024

_LATEST: Final = 1e18
"""No clock is beyond it, whatever its unit."""

_OWN_CLOCK: Final = 1e6
"""``--log-jsonl`` counts microseconds since the process began."""

_TEXTS: Final = ("msg", "log", "message", "MESSAGE")
_TIMES: Final = ("time", "timestamp", "ts")
_LEVELS: Final = {"debug": "D ", "info": "I ", "warn": "W ", "warning": "W ", "error": "E ", "err": "E ", "trace": "T "}
_OWN_LINE = re.compile(rb'\{"type":"log","time":(\d{1,15}),"level":"(\w+)","msg":"([^"\\\x1b]*)\\n"\}')
"""A message of ``--log-jsonl`` without anything that JSON escapes: most are such, and need no decoder."""
_OWN_LEVELS: Final = {name.encode(): letter.encode() for name, letter in _LEVELS.items()}


@dataclass(slots=True)
class Unwrapped:
    """Lines of one server, in order."""

    lines: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """Where each stands in the log, from 1; a message of many lines has the same for each."""
    stamps: list[float | None] = field(default_factory=list)
    """Seconds of any clock."""
    size_bytes: int = 0


def without_colours(text: bytes) -> bytes:
    """``text`` without what a terminal would take as a colour, and without what no log should have."""
    if b"\x1b" in text:
        text = _COLOUR.sub(b"", text)
    if b"\r" in text:
        text = text.replace(b"\r", b"")
    return text.replace(b"\0", b"") if b"\0" in text else text


class Wrapping:
    """Finds out how a log is wrapped, and unwraps it."""

    def __init__(self) -> None:
        self._named: re.Pattern[bytes] | None = None
        self._looked = False
        self._last = ""
        self._names: dict[bytes, str] = {}

    def has_any(self, lines: Sequence[bytes], shapes: Iterable[bytes]) -> bool:
        """Whether any of ``lines``, which have these shapes, is wrapped in any way. Call it on all lines in turn."""
        if not self._looked:
            self._looked = True
            self._named = _common_name(lines[:_LOOKED_AT])
        return self._named is not None or any(shape.startswith(_WRAPPED) for shape in shapes)

    def unwrap(self, lines: Sequence[bytes], first_number: int) -> dict[str, Unwrapped]:
        """Lines by pod, as ``pod/container``; those that no pod is named for are under an empty name."""
        parts: dict[str, Unwrapped] = {}
        for number, line in enumerate(lines, start=first_number):
            name, stamp, text = self._strip(line)
            part = parts.get(name)
            if part is None:
                part = parts[name] = Unwrapped()
            part.lines.append(text)
            part.numbers.append(number)
            part.stamps.append(stamp)
            part.size_bytes += len(line) + 1
        return {name: _without_json(_without_json(part)) for name, part in parts.items()}

    def _name(self, match: re.Match[bytes]) -> str:
        known = self._names.get(match[0])
        if known is None:
            known = b"/".join(match.groups()).decode(errors="replace")
            if len(self._names) < _NAMES:
                self._names[match[0]] = known
        return known

    def _strip(self, line: bytes) -> tuple[str, float | None, bytes]:
        name, stamp = "", None
        if line[:5] == b"[pod/" and (match := _POD.match(line)):
            name = self._name(match)
            line = line[match.end() :]
        elif self._named is not None:
            match = self._named.match(line)
            if match is not None:
                name = self._name(match)
                line, self._last = line[match.end() :], name
            else:
                name = self._last
        if line[:1] == b"[" and (match := _PORT.match(line)):
            name = f"{name}:{self._name(match)}" if name else f"port {self._name(match)}"
            line = line[match.end() :]
        if line[:2] == b"20" and (match := _TIME.match(line)):
            stamp = _seconds(match)
            line = line[match.end() :]
            if match := _LEVEL.match(line):
                line = line[match.end() :]
            if line[:3] == b"std" and (match := _CRI.match(line)):
                line = line[match.end() :]
        return name, stamp, line


def _common_name(lines: Sequence[bytes]) -> re.Pattern[bytes] | None:
    told = [line for line in lines if line.strip()]
    for pattern in _NAMED:
        if len(told) > 1 and sum(1 for line in told if pattern.match(line)) >= _SURE * len(told):
            return pattern
    return None


def _seconds(match: re.Match[bytes]) -> float | None:
    day, clock, fraction, zone = (group.decode() if group else "" for group in match.groups())
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in ('', 'Z') else zone}")
    except ValueError:
        return None
    return moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)


def _without_json(part: Unwrapped) -> Unwrapped:
    """The messages of lines that are JSON objects; other lines stay."""
    own = [_OWN_LINE.fullmatch(line) if line[:2] == b'{"' else None for line in part.lines]
    others = [line for line, match in zip(part.lines, own, strict=True) if match is None and line[:2] == b'{"']
    if not others and not any(own):
        return part
    documents = iter(_decoded(others))
    out = Unwrapped(size_bytes=part.size_bytes)
    for line, number, stamp, match in zip(part.lines, part.numbers, part.stamps, own, strict=True):
        if match is not None:
            out.lines.append(_OWN_LEVELS.get(match[2], b"") + match[3])
            out.numbers.append(number)
            out.stamps.append(int(match[1]) / _OWN_CLOCK)
        elif line[:2] == b'{"':
            document = next(documents)
            text = _message(document)
            for inner in () if text is None else text.split("\n"):
                out.lines.append(without_colours(inner.encode(errors="replace")))
                out.numbers.append(number)
                out.stamps.append(_stamp(document, stamp))
        else:
            out.lines.append(line)
            out.numbers.append(number)
            out.stamps.append(stamp)
    return out


def _decoded(lines: Sequence[bytes]) -> list[object]:
    """Each line's document, or None for one that is broken."""
    try:
        found = json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        return [_one(line) for line in lines]
    return found if len(found) == len(lines) else [_one(line) for line in lines]


def _one(line: bytes) -> object:
    try:
        return json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _message(document: object) -> str | None:
    """The text of a message without its line end, its level in front as llama-server has it; None: there is none."""
    if not isinstance(document, dict):
        return None
    if "function" in document and (old := as_old_line(document)) is not None:
        return old
    text: object = next((document[key] for key in _TEXTS if isinstance(document.get(key), str)), None)
    if not isinstance(text, str):
        return None
    level = document.get("level")
    return (_LEVELS.get(level.lower(), "") if isinstance(level, str) else "") + text.rstrip("\n")


def _stamp(document: object, otherwise: float | None) -> float | None:
    assert isinstance(document, dict)
    for key in _TIMES:
        value = document.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST:
            return float(value) / (_OWN_CLOCK if document.get("type") == "log" else 1.0)
        if isinstance(value, str) and (match := _TIME.match(value.encode(errors="replace"))):
            return _seconds(match)
    return otherwise
