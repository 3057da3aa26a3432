"""Times that keepers of logs write beside lines, in whatever form, as seconds since 1970."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

__all__ = ["in_seconds", "seconds_of"]

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
