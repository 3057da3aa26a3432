"""Only numbers decide whether production keeps its promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.v1alpha1 import SLO
from slotune.production.looks import Look, Shown, take_look, what_it_shows
from slotune.production.queries import Queries
from slotune.production.readings import (
    NoData,
    NotANumber,
    Reading,
    SeveralSeries,
    Unreachable,
    Value,
    describe,
)
from tests.production.samples import PROMISE, look

NO_VALUE = [NoData(), NotANumber(), SeveralSeries(2), Unreachable("http://prometheus: nothing listens there")]
ONLY_TTFT = SLO(ttft_p95="1s")
QUERIES = Queries("ttft", "speed", False, "processing", "deferred", "prefill")


@pytest.mark.parametrize(
    ("seen", "promise", "want"),
    [
        pytest.param(look(0.7, 44), PROMISE, Shown.KEPT, id="both within"),
        pytest.param(look(1.0, 30), PROMISE, Shown.KEPT, id="at the target itself"),
        pytest.param(look(1.001, 44), PROMISE, Shown.MISSED, id="late"),
        pytest.param(look(0.7, 29.9), PROMISE, Shown.MISSED, id="slow"),
        pytest.param(look(1.2, NoData()), PROMISE, Shown.MISSED, id="late, and no speed is known"),
        pytest.param(look(None, 20), PROMISE, Shown.MISSED, id="slow, and TTFT was not asked"),
        pytest.param(look(0.7, NoData()), PROMISE, Shown.UNKNOWN, id="a speed is owed and unknown"),
        pytest.param(look(0.7, None), PROMISE, Shown.UNKNOWN, id="a speed is owed and was not asked"),
        pytest.param(look(0.7, NoData()), ONLY_TTFT, Shown.KEPT, id="no speed is owed"),
        pytest.param(look(0.7, 1), ONLY_TTFT, Shown.KEPT, id="slow, but no speed is owed"),
        pytest.param(look(None, 44), PROMISE, Shown.PARTLY_KEPT, id="fast, and TTFT was not asked"),
        pytest.param(look(None, 44), ONLY_TTFT, Shown.UNKNOWN, id="only TTFT is owed, and was not asked"),
        pytest.param(look(NotANumber(), 44), PROMISE, Shown.UNKNOWN, id="TTFT is NaN"),
        pytest.param(look(None, None), PROMISE, Shown.UNKNOWN, id="nothing was asked"),
    ],
)
def test_what_a_look_shows(seen: Look, promise: SLO, want: Shown) -> None:
    assert what_it_shows(seen, promise) is want


@given(st.sampled_from(NO_VALUE), st.sampled_from(NO_VALUE), st.sampled_from([PROMISE, ONLY_TTFT]))
def test_no_number_shows_nothing(ttft: Reading, speed: Reading, promise: SLO) -> None:
    assert what_it_shows(look(ttft, speed), promise) is Shown.UNKNOWN


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_two_numbers_always_show_something(ttft: float, speed: float) -> None:
    kept = ttft <= 1 and speed >= 30
    assert what_it_shows(look(ttft, speed), PROMISE) is (Shown.KEPT if kept else Shown.MISSED)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_is_always_finite(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Value(value)


@pytest.mark.parametrize("value", [-0.1, 1e10])
def test_a_look_holds_no_impossible_time(value: float) -> None:
    with pytest.raises(ValueError, match="ttft_p95"):
        look(value)


class Canned:
    """A reader that answers from a function, and remembers what it was asked."""

    def __init__(self, answer: Callable[[str], Reading]) -> None:
        self.asked: list[str] = []
        self._answer = answer

    async def scalar(self, query: str, at: datetime) -> Reading:
        self.asked.append(query)
        return self._answer(query)


async def test_each_reading_lands_in_its_place() -> None:
    values = {"ttft": 0.7, "speed": 44.0, "processing": 3.0, "deferred": 1.0, "prefill": 900.0}
    reader = Canned(lambda query: Value(values[query]))
    want = Look(Value(0.7), Value(44), False, Value(3), Value(1), Value(900))
    assert await take_look(reader, QUERIES, datetime.now(UTC)) == want


@pytest.mark.parametrize(("value", "found"), [(-1.0, "a negative number"), (1e12, "a number beyond all measure")])
async def test_an_impossible_number_is_no_value(value: float, found: str) -> None:
    seen = await take_look(Canned(lambda _: Value(value)), QUERIES, datetime.now(UTC))
    assert seen.ttft_p95 == NotANumber(found)
    assert what_it_shows(seen, PROMISE) is Shown.UNKNOWN


async def test_the_others_are_not_asked_when_nobody_answers() -> None:
    reader = Canned(lambda _: Unreachable("down"))
    seen = await take_look(reader, QUERIES, datetime.now(UTC))
    assert reader.asked == ["ttft"]
    assert seen.tokens_per_second == Unreachable("down")


@pytest.mark.parametrize(
    ("reading", "want"),
    [
        (Value(1.0), ""),
        (Value(1.0, ("one store is down",)), "Prometheus warns: one store is down"),
        (NoData(), "no series matches: are the pods scraped, and do its labels exist?"),
        (NotANumber(), "NaN: nothing was served while it looked"),
        (NotANumber("a histogram"), "a histogram is no number that can be compared"),
        (SeveralSeries(3), "3 series: exactly one is needed, so aggregate them, with sum() or max() for example"),
        (Unreachable("down"), "down"),
    ],
)
def test_every_reading_has_its_words(reading: Reading, want: str) -> None:
    assert describe(reading) == want
