"""Five cron fields, as crontab(5) reads them: minute, hour, day of the month, month, day of the week.

Written here and not taken from a library: it is one page, and when clocks change it has to do what the windows do. A
local time that comes twice fires once, the first time; one that is skipped fires as much later as the clock jumps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from slotune.api.quantities import QuantityError

__all__ = ["Cron", "parse_cron"]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()
    """Names of its values, from the least one on."""

    def number(self, word: str) -> int | None:
        """The value that a word states; None for a word that is none."""
        if word.isdigit():
            return int(word)
        return self.words.index(word.upper()) + self.least if word.upper() in self.words else None


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    _Field("day of the week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
)
_PART: Final = re.compile(r"(?:\*|(?P<first>[0-9A-Za-z]+)(?:-(?P<last>[0-9A-Za-z]+))?)(?:/(?P<step>[0-9]+))?")
_EXAMPLE: Final = 'five cron fields are needed, in quotes, such as "0 3 * * 6"'
_LONGEST_WAIT_DAYS: Final = 8 * 366 + 1
"""29 February comes within so many days, also around 2100."""


@dataclass(frozen=True, slots=True)
class Cron:
    """When something is due, again and again, in local time."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    """Of the month."""
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either_day: bool
    """Whether one of the two days is enough: so when both are restricted (crontab(5))."""

    def matches(self, day: date) -> bool:
        """Whether something is due on that day."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week

    def next_after(self, moment: datetime, zone: ZoneInfo) -> datetime | None:
        """The first time after ``moment``, in UTC; None when there is none, such as for 30 February."""
        day = moment.astimezone(zone).date() - timedelta(days=1)
        for _ in range(_LONGEST_WAIT_DAYS + 1):
            if self.matches(day):
                due = min((at for at in self._on(day, zone) if at > moment), default=None)
                if due is not None:
                    return due
            day += timedelta(days=1)
        return None

    def is_due_at(self, moment: datetime, zone: ZoneInfo) -> bool:
        """Whether ``moment`` is one of its times."""
        return self.next_after(moment - timedelta(microseconds=1), zone) == moment

    def _on(self, day: date, zone: ZoneInfo) -> list[datetime]:
        return [
            datetime.combine(day, time(hour, minute), zone).astimezone(UTC)
            for hour in self.hours
            for minute in self.minutes
        ]


def parse_cron(text: str, field: str = "schedule") -> Cron:
    """Five fields of numbers, names, ranges, lists and steps. Anything else is a QuantityError with the cure."""
    words = text.split(" ")
    if len(words) != len(_FIELDS):
        raise QuantityError(field, text, _EXAMPLE)
    try:
        return _cron(words)
    except ValueError as error:
        raise QuantityError(field, text, f"{error}: {_EXAMPLE}") from None


def _cron(words: list[str]) -> Cron:
    minutes, hours, days, months, weekdays = map(_values, _FIELDS, words)
    restricted = not words[2].startswith("*") and not words[4].startswith("*")
    return Cron(
        tuple(sorted(minutes)), tuple(sorted(hours)), days, months, frozenset(day % 7 for day in weekdays), restricted
    )


def _values(of: _Field, word: str) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"the {of.name} is {part!r}")
        first = of.least if match["first"] is None else of.number(match["first"])
        last = first if match["last"] is None else of.number(match["last"])
        # A step without an end goes on to the end, as in 5/10.
        if match["first"] is None or (match["step"] is not None and match["last"] is None):
            last = min(of.most, 6) if of.words[:1] == ("SUN",) else of.most  # 7 is 0 again
        step = int(match["step"] or 1)
        if first is None or last is None or not of.least <= first <= last <= of.most or step < 1:
            raise ValueError(f"the {of.name} is {part!r}, and goes from {of.least} to {of.most}")
        found.update(range(first, last + 1, step))
    return frozenset(found)
