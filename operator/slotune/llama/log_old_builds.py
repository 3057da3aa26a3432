"""Lines as llama.cpp wrote them until September 2024, when each was a level, a function, a message, and fields.

    INFO [            update_slots] slot released | tid="1395" timestamp=1721895109 id_slot=0 n_past=42 truncated=false

With ``--log-format json``, and always before February 2024, the same is one JSON object; that is written here as above.
Fields may hold what a user wrote, so of a line only its message is searched, and only numbers are shown. Builds from
before February 2024 also print ``slot 0 is processing [task id: 3]``. Strings: llama.cpp's source at b2360 and b3561,
and logs in its issues (ggml-org/llama.cpp#5936, #7637, #9013).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["IK_LLAMA", "LAST_BUILD", "LAST_OLD_S", "OldLine", "as_old_line", "is_old_work", "old_line", "slot_of"]

LAST_BUILD: Final = 3750
"""About the last build that wrote such lines."""
LAST_OLD_S: Final = 1_735_689_600
"""Seconds of 2025-01-01: months after the last such build, so that only a fork writes such lines since."""
IK_LLAMA: Final = "ik_llama.cpp"
"""That fork."""

_LINE = re.compile(
    rb" *(INFO|WARN|WARNING|ERR|ERROR|VERB|VERBOSE|DEBUG) +\[ *([\w~()]+) *\] +(.*?) \|( .*)\Z", re.DOTALL
)
_THREAD = re.compile(rb' tid="[0-9a-fx]+"')
_LETTERS: Final = {b"I": b"I", b"W": b"W", b"E": b"E", b"V": b"D", b"D": b"D"}
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NUMBER = re.compile(rb" (\w+=(?:-?\d[\d.e+-]*|true|false))(?= |\Z)")
_UNSHOWN: Final = (b"timestamp=", b"t_token", b"n_tokens_second", b"remote_")

_SLOT = re.compile(rb"(?:id_slot|slot_id)=(\d{1,6})|\Aslot (\d{1,6}) ")
_WORK = re.compile(rb"slot is processing task\Z|\Aslot \d+ is processing \[task")
_HOT = re.compile(
    rb"slot is processing task\Z|slot released\Z|(?:prompt|generation) eval time +="
    rb"|\Aslot \d+ (?:is processing \[task|released \()"
)

_FIELDS: Final = ("tid", "timestamp", "level", "function", "line", "msg", "message")


class OldLine(NamedTuple):
    """One of them, taken apart."""

    letter: bytes
    """Its level, as builds of today name it."""
    message: bytes
    fields: bytes
    """Without what is in quotes."""

    @property
    def shown(self) -> bytes:
        """The message, and the numbers beside it."""
        numbers = (found for found in _NUMBER.findall(self.fields) if not found.startswith(_UNSHOWN))
        return b" ".join((self.message.strip(), *numbers))


def old_line(line: bytes) -> OldLine | None:
    """``line`` taken apart, or None: it is not of that kind."""
    match = _LINE.match(line)
    if match is None or not _THREAD.search(match[4]):
        return None
    fields = _STRING.sub(b"", match[4]).partition(b'"')[0]
    return OldLine(_LETTERS[match[1][:1]], match[3], fields)


def as_old_line(document: Mapping[str, Any]) -> str | None:
    """The line that the same message would be without ``--log-format json``; None: it is not one of llama-server's."""
    function, level, stamp = document.get("function"), document.get("level"), document.get("timestamp")
    message = document.get("msg", document.get("message"))
    if not isinstance(function, str) or not isinstance(message, str) or not isinstance(level, str):
        return None
    if type(stamp) is not int or type(document.get("line")) is not int or not function.replace("()", "").isidentifier():
        return None
    numbers = [
        f"{key}={str(value).lower()}"
        for key, value in document.items()
        if key not in _FIELDS and key.isidentifier() and isinstance(value, bool | int | float)
    ]
    commit = document.get("commit")
    named = [f'commit="{commit}"'] if isinstance(commit, str) and commit.isalnum() else []
    thread = str(document.get("tid", ""))
    fields = " ".join([f'tid="{thread if thread.isalnum() else 0}"', f"timestamp={stamp}", *numbers, *named])
    return f"{level.upper():>4} [{function:>24}] {message.splitlines()[0] if message else ''} | {fields}"


def is_old_work(message: bytes) -> tuple[bool, bool]:
    """Whether ``message`` has something to add up, and whether it says that a slot begins to work."""
    return _HOT.search(message) is not None, _WORK.search(message) is not None


def slot_of(line: bytes) -> bytes:
    """The slot that a line names; empty where it names none."""
    match = _SLOT.search(line)
    return b"" if match is None else match[1] or match[2]
