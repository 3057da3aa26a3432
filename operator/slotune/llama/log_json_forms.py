"""How the JSON objects of one log keeper look, learned from a few, so that most need no decoder.

A keeper writes the same object around each line: only the text and the time differ. What a decoder found in one makes
the pattern for all that are alike; an object that is not, or whose text has anything that JSON escapes, is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

__all__ = ["Form", "form_of"]

_NUMBER = re.compile(rb":( ?-?\d[\d.]*)(?=[,}])")
_TEXT: Final = rb'([^"\\\x1b]*)'
_STRING: Final = rb'"([^"\\]*)"'


class Form(NamedTuple):
    """Objects that are alike."""

    pattern: re.Pattern[bytes]
    text: int
    """Number of its group; the other is the time's."""
    time: int
    """0: it has none."""
    is_number: bool
    name: str
    """Where they are all from."""


def form_of(line: bytes, document: Mapping[str, Any], text: str, time: str | float | None, name: str) -> Form | None:
    """What finds objects like ``line``, which has this text, time and name; None: it can't be told from the line."""
    if document.get("type") == "log" or "function" in document:
        return None
    said = text.encode(errors="replace")
    ends = [end for end in (b'"', b'\\n"') if line.count(b'"' + said + end) == 1]
    if len(ends) != 1 or not said:
        return None
    begin = line.index(b'"' + said + ends[0]) + 1
    places = [(begin, begin + len(said), _TEXT, True)]
    if isinstance(time, str):
        written = b'"' + time.encode(errors="replace") + b'"'
        if line.count(written) != 1:
            return None
        place = line.index(written)
        places.append((place, place + len(written), _STRING, False))
    elif time is not None:
        found = [match for match in _NUMBER.finditer(line) if float(match[1]) == time]
        if len(found) != 1:
            return None
        places.append((found[0].start(1), found[0].end(1), rb"( ?-?\d[\d.]*)", False))
    places.sort()
    if any(before[1] > behind[0] for before, behind in pairwise(places)):
        return None
    pattern, start = b"", 0
    for first, last, group, _ in places:
        pattern += re.escape(line[start:first]) + group
        start = last
    order = [is_text for *_, is_text in places]
    number = 0 if time is None else order.index(False) + 1
    return Form(
        re.compile(pattern + re.escape(line[start:])), order.index(True) + 1, number, not isinstance(time, str), name
    )
