"""When a weekly window of local time is open, in moments that every clock agrees on.

Twice a year an hour of local time is missing or comes twice. A window's ends are read so that it is never longer than
what was written: it opens at the later reading and closes at the earlier one, and one that vanishes is not open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from slotune.api.quantities import Window

__all__ = ["Opening", "UnknownTimeZoneError", "next_opening", "opening_at", "time_zone"]

_DAYS_AHEAD: Final = 15
"""Two weeks and a day: one opening of a weekly window may vanish when clocks change."""


class UnknownTimeZoneError(ValueError):
    """No such time zone is known on this machine."""

    def __init__(self, field: str, value: str) -> None:
        self.field, self.value = field, value
        super().__init__(f"{field} is {value!r}: write a time zone of the IANA database, such as UTC or Europe/Berlin")


@dataclass(frozen=True, slots=True)
class Opening:
    """One stretch of time in which the window is open: from ``start`` on, and no more at ``end``."""

    start: datetime
    end: datetime


def time_zone(name: str, field: str = "sandbox.borrow.timeZone") -> ZoneInfo:
    """The time zone of that name, or :class:`UnknownTimeZoneError`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UnknownTimeZoneError(field, name) from error


def opening_at(window: Window, zone: ZoneInfo, now: datetime) -> Opening | None:
    """The opening that ``now`` is in, the one that closes last; None when the window is closed."""
    today = now.astimezone(zone).date()
    candidates = _openings(window, zone, today - timedelta(days=2), 4)
    return max((it for it in candidates if it.start <= now < it.end), key=lambda it: it.end, default=None)


def next_opening(window: Window, zone: ZoneInfo, now: datetime) -> Opening | None:
    """The first opening that starts after ``now``; None when there is none in two weeks."""
    today = now.astimezone(zone).date()
    candidates = _openings(window, zone, today - timedelta(days=1), _DAYS_AHEAD + 1)
    return min((it for it in candidates if it.start > now), key=lambda it: it.start, default=None)


def _openings(window: Window, zone: ZoneInfo, first: date, days: int) -> Iterator[Opening]:
    for offset in range(days):
        day = first + timedelta(days=offset)
        if day.weekday() not in window.days:
            continue
        local = datetime.combine(day, time()) + timedelta(minutes=window.start_minute)
        start = max(_readings(local, zone))
        end = min(_readings(local + timedelta(minutes=window.length_minutes), zone))
        if start < end:
            yield Opening(start, end)


def _readings(local: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Both moments that a local time may mean; they are equal except where clocks change."""
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return first, second
