"""Windows of local time, on days when clocks change too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.quantities import parse_window
from slotune.rollout.windows import Opening, UnknownTimeZoneError, next_opening, opening_at, time_zone

BERLIN, UTC_ZONE = time_zone("Europe/Berlin"), time_zone("UTC")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "now", "want"),
    [
        pytest.param("02:00-05:00", "2026-03-02T02:00", ("2026-03-02T02:00", "2026-03-02T05:00"), id="it opens"),
        pytest.param("02:00-05:00", "2026-03-02T05:00", None, id="it is closed at its end"),
        pytest.param("Sat 22:00-04:00", "2026-03-08T03:00", ("2026-03-07T22:00", "2026-03-08T04:00"), id="midnight"),
        pytest.param("Sat 22:00-04:00", "2026-03-08T22:30", None, id="its day is the one on which it opens"),
        pytest.param("00:00-00:00", "2026-03-08T12:00", ("2026-03-08T00:00", "2026-03-09T00:00"), id="a whole day"),
        pytest.param("Mon-Fri 01:00-03:00", "2026-03-07T02:00", None, id="not on Saturday"),
    ],
)
def test_a_window_is_open_or_closed(window: str, now: str, want: tuple[str, str] | None) -> None:
    found = opening_at(parse_window(window), UTC_ZONE, at(now))
    assert found == (want and Opening(at(want[0]), at(want[1])))


def test_local_time_counts() -> None:
    found = opening_at(parse_window("02:00-05:00"), BERLIN, at("2026-07-01T01:00"))
    assert found == Opening(at("2026-07-01T00:00"), at("2026-07-01T03:00"))


@pytest.mark.parametrize(
    ("window", "day", "want"),
    [
        # On 2026-03-29 Berlin's clocks go from 02:00 to 03:00, on 2026-10-25 from 03:00 back to 02:00.
        pytest.param("01:00-05:00", "2026-03-28", ("2026-03-29T00:00", "2026-03-29T03:00"), id="an hour is missing"),
        pytest.param("02:30-05:00", "2026-03-28", ("2026-03-29T01:30", "2026-03-29T03:00"), id="it opens in the gap"),
        pytest.param("01:00-05:00", "2026-10-24", ("2026-10-24T23:00", "2026-10-25T04:00"), id="an hour comes twice"),
        pytest.param(
            "02:30-05:00", "2026-10-24", ("2026-10-25T01:30", "2026-10-25T04:00"), id="it opens the later time"
        ),
        pytest.param(
            "01:00-02:30", "2026-10-24", ("2026-10-24T23:00", "2026-10-25T00:30"), id="it closes the first time"
        ),
    ],
)
def test_clocks_that_change_never_lengthen_what_was_written(window: str, day: str, want: tuple[str, str]) -> None:
    found = next_opening(parse_window(window), BERLIN, at(f"{day}T12:00"))
    assert found == Opening(at(want[0]), at(want[1]))


def test_a_window_in_the_missing_hour_opens_on_the_next_day() -> None:
    found = next_opening(parse_window("02:00-03:00"), BERLIN, at("2026-03-28T12:00"))
    assert found == Opening(at("2026-03-30T00:00"), at("2026-03-30T01:00"))
    sunday = next_opening(parse_window("Sun 02:00-03:00"), BERLIN, at("2026-03-28T12:00"))
    assert sunday == Opening(at("2026-04-05T00:00"), at("2026-04-05T01:00"))


def test_an_unknown_time_zone_names_its_field() -> None:
    for name in ("Europe/Atlantis", "../etc/passwd", ""):
        with pytest.raises(UnknownTimeZoneError, match=r"sandbox\.borrow\.timeZone is"):
            time_zone(name)


@given(
    st.sampled_from(["02:00-05:00", "Sat 22:00-04:00", "Mon,Thu 23:30-00:15", "00:00-00:00", "Fri-Mon 12:00-11:00"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),
)
def test_the_next_opening_is_the_first_moment_at_which_a_closed_window_is_open(
    text: str, zone_name: str, now: datetime
) -> None:
    window, zone = parse_window(text), time_zone(zone_name)
    here, following = opening_at(window, zone, now), next_opening(window, zone, now)
    assert following is not None
    assert following.start > now
    assert opening_at(window, zone, following.start) is not None
    if here is None:
        before = now + (following.start - now) / 2
        assert opening_at(window, zone, before) is None
    else:
        assert here.start <= now < here.end
        assert here.end - here.start <= timedelta(minutes=window.length_minutes + 60)
        assert here.start.astimezone(zone).weekday() in window.days
