"""How the JSON objects of one log keeper look, learned from a few, so that most need no decoder.

A keeper writes the same object around each line: only the text and the time differ. What a decoder found in one makes
the pattern for all that are alike; an object that is not, or whose text has anything that JSON escapes, is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from slotune.llama.log_seams import Seams
from slotune.llama.log_times import in_seconds

__all__ = ["OWN_CLOCK", "Form", "docker_form", "form_of", "own_form"]

OWN_CLOCK: Final = 1e6
"""``--log-jsonl`` counts microseconds since the process began."""

_NUMBER = re.compile(rb":( ?-?\d[\d.]*)(?=[,}])")
_STRING: Final = rb'"([^"\\\n]*)"'
_UNLIKE: Final = b'"\\\x1b'
"""What is in no text that is its own JSON: quotes and backslashes, and colours, which are taken out."""


class Form(NamedTuple):
    """Objects that are alike."""

    seams: Seams
    time: int | None
    """Number of its group, from 0; None: it has none."""
    seconds: Callable[[list[bytes]], list[float]] | None
    """Makes seconds of times that are numbers; None: they are kept as they are written."""
    name: str = ""
    """Where they are all from."""
    letters: Mapping[bytes, bytes] = {}
    """What a level is in front of a text, where that is the second group."""


def own_form(letters: Mapping[bytes, bytes]) -> Form:
    """Messages of ``--log-jsonl``, whose levels are written so in front of a text."""
    head = rb'\{"type":"log","time":(\d{1,15}),"level":"(\w+)","msg":"'
    return Form(Seams(head, rb'\\n"\}', unlike=_UNLIKE), 0, _own_seconds, letters=letters)


def docker_form() -> Form:
    """Lines as Docker keeps them."""
    tail = rb'\\n","stream":"std\w{3}","time":"([^"\\\n]*)"\}'
    return Form(Seams(rb'\{"log":"', tail, unlike=_UNLIKE), 0, None)


def form_of(line: bytes, document: Mapping[str, Any], text: str, time: str | float | None, name: str) -> Form | None:
    """What finds objects like ``line``, which has this text, time and name; None: it can't be told from the line."""
    if document.get("type") == "log" or "function" in document:
        return None
    said = text.encode(errors="replace")
    ends = [end for end in (b'"', b'\\n"') if line.count(b'"' + said + end) == 1]
    if len(ends) != 1 or not said:
        return None
    begin = line.index(b'"' + said + ends[0]) + 1
    places = [(begin, begin + len(said), b"")]
    if isinstance(time, str):
        written = b'"' + time.encode(errors="replace") + b'"'
        if line.count(written) != 1:
            return None
        place = line.index(written)
        places.append((place, place + len(written), _STRING))
    elif time is not None:
        found = [match for match in _NUMBER.finditer(line) if float(match[1]) == time]
        if len(found) != 1:
            return None
        places.append((found[0].start(1), found[0].end(1), rb"( ?-?\d[\d.]*)"))
    places.sort()
    if any(before[1] > behind[0] for before, behind in pairwise(places)):
        return None
    around, start = [b""], 0
    for first, last, group in places:
        around[-1] += re.escape(line[start:first]) + group
        if not group:  # the text
            around.append(b"")
        start = last
    head, tail = around[0], around[1] + re.escape(line[start:])
    seconds = _seconds if isinstance(time, float | int) else None
    return Form(Seams(head, tail, unlike=_UNLIKE), None if time is None else 0, seconds, name)


def _own_seconds(written: list[bytes]) -> list[float]:
    return [time / OWN_CLOCK for time in map(int, written)]


def _seconds(written: list[bytes]) -> list[float]:
    return list(map(in_seconds, map(float, written)))
