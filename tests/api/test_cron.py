"""When a schedule is due, against a reading that looks at every minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.api.cron import Cron, parse_cron
from slotune.api.quantities import QuantityError

BERLIN, ZULU = ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "now", "want"),
    [
        pytest.param("0 3 * * 6", "2026-03-02T12:00", "2026-03-07T03:00", id="Saturday"),
        pytest.param("0 3 * * SAT", "2026-03-07T03:00", "2026-03-14T03:00", id="not the same one again"),
        pytest.param("*/20 * * * *", "2026-03-02T12:01", "2026-03-02T12:20", id="steps"),
        pytest.param("5/25 1,13 * * *", "2026-03-02T02:00", "2026-03-02T13:05", id="a step without an end"),
        pytest.param("0 0 13 * FRI", "2026-03-02T00:00", "2026-03-06T00:00", id="either day"),
        pytest.param("0 0 13 * *", "2026-03-02T00:00", "2026-03-13T00:00", id="the day of the month alone"),
        pytest.param("0 0 1 JAN-MAR/2 *", "2026-01-01T00:00", "2026-03-01T00:00", id="months by name"),
        pytest.param("0 0 * * 7", "2026-03-02T00:00", "2026-03-08T00:00", id="7 is Sunday"),
        pytest.param("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00", id="eight years"),
        pytest.param("0 0 30 2 *", "2026-03-02T00:00", None, id="never"),
    ],
)
def test_the_next_time(text: str, now: str, want: str | None) -> None:
    assert parse_cron(text).next_after(at(now), ZULU) == (None if want is None else at(want))


@pytest.mark.parametrize(
    ("text", "now", "want"),
    [
        pytest.param("30 2 * * *", "2026-03-28T12:00", "2026-03-29T01:30", id="a skipped time comes after the jump"),
        pytest.param("30 2 * * *", "2026-10-24T12:00", "2026-10-25T00:30", id="of two the first"),
        pytest.param("30 2 * * *", "2026-10-25T00:30", "2026-10-26T01:30", id="and not the second"),
    ],
)
def test_when_clocks_change(text: str, now: str, want: str) -> None:
    assert parse_cron(text).next_after(at(now), BERLIN) == at(want)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("0 3 * *", "five"),
        ("60 * * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 0 0 * *", "day of the month"),
        ("0 0 * 13 *", "month"),
        ("0 0 * * 8", "day of the week"),
        ("0 0 * * FRI-MON", "day of the week"),
        ("*/0 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("0 0 * FOO *", "month"),
        ("@daily", "five"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_field(text: str, word: str) -> None:
    with pytest.raises(QuantityError, match=word):
        parse_cron(text)


def numbers(least: int, most: int) -> st.SearchStrategy[str]:
    one = st.integers(least, most)
    ends = st.tuples(one, one).map(sorted)
    return st.one_of(
        st.just("*"),
        st.integers(1, 9).map(lambda step: f"*/{step}"),
        st.lists(one, min_size=1, max_size=3).map(lambda found: ",".join(map(str, found))),
        st.tuples(ends, st.integers(1, 7)).map(lambda it: f"{it[0][0]}-{it[0][1]}/{it[1]}"),
    )


def member(field: str, least: int, most: int, value: int) -> bool:
    """Whether a field of numbers holds a value: said again, as plainly as can be."""
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, high = (least, most) if span == "*" else (int(span.split("-")[0]), int(span.split("-")[-1]))
        if low <= value <= high and (value - low) % int(step or 1) == 0:
            return True
    return False


def due(fields: list[str], local: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    clock = (
        member(minute, 0, 59, local.minute) and member(hour, 0, 23, local.hour) and member(month, 1, 12, local.month)
    )
    of_month = member(day, 1, 31, local.day)
    of_week = any(member(weekday, 0, 6, it) for it in (local.isoweekday() % 7,))
    both = not day.startswith("*") and not weekday.startswith("*")
    return clock and (of_month or of_week if both else of_month and of_week)


@settings(deadline=None, max_examples=80)
@given(
    st.tuples(numbers(0, 59), numbers(0, 23), numbers(1, 31), numbers(1, 12), numbers(0, 6)),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
)
def test_it_is_the_first_minute_that_matches(fields: tuple[str, ...], now: datetime) -> None:
    found = parse_cron(" ".join(fields)).next_after(now, ZULU)
    minute = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for _ in range(3 * 24 * 60):
        if due(list(fields), minute):
            assert found == minute
            return
        minute += timedelta(minutes=1)
    assert found is None or found >= minute


@given(st.datetimes(datetime(2026, 3, 27), datetime(2026, 11, 1), timezones=st.just(UTC)), st.integers(1, 59))
def test_no_time_is_due_twice_and_each_follows_the_one_before(now: datetime, minutes: int) -> None:
    cron: Cron = parse_cron(f"*/{minutes} 1-4 * * *")
    first = cron.next_after(now, BERLIN)
    assert first is not None
    assert first > now
    assert cron.is_due_at(first, BERLIN)
    assert not cron.is_due_at(first + timedelta(seconds=30), BERLIN)
    second = cron.next_after(first, BERLIN)
    assert second is not None
    assert second > first
