"""A breach lasts as long as looks show it, and silence is neither good nor bad."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.v1alpha1 import SLO, Measured, Production, Retune
from slotune.production.looks import Look
from slotune.production.readings import NoData, NotANumber, Reading, SeveralSeries, Unreachable, Value
from slotune.production.watch import beside, breach_calls_for_search, next_look, observe, worth_saving
from tests.production.samples import PROMISE, look

THEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
KEPT, MISSED, SILENT = look(0.7), look(1.4), look(NoData())
LETTERS = {"k": KEPT, "m": MISSED, "-": SILENT, "p": look(None)}
MEASURED = Measured(ttft_p95="620ms", tokens_per_second_p5="44")
BREACH = Retune(triggers=("SLOBreach",), breach_for="3m")


def minute(number: int) -> str:
    return (THEN + timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%SZ")


def after(letters: str, *, step_m: float = 1, slo: SLO = PROMISE) -> Production:
    """The status after these looks, one a minute: k kept, m missed, - silent, p only the speed was asked."""
    status: Production | None = None
    for number, letter in enumerate(letters):
        status = observe(
            LETTERS[letter], slo, status, now=THEN + timedelta(minutes=number * step_m), interval_s=step_m * 60
        )
    assert status is not None
    return status


@pytest.mark.parametrize(
    ("looks", "kept_since", "breached_since"),
    [
        pytest.param("k", 0, None, id="kept from the start"),
        pytest.param("kkk", 0, None, id="kept for two minutes"),
        pytest.param("-", None, None, id="silence says nothing"),
        pytest.param("k-", 0, None, id="silence does not end what was kept"),
        pytest.param("km", None, 1, id="a miss begins a breach"),
        pytest.param("kmm-m", None, 1, id="silence does not end a breach"),
        pytest.param("mk", 1, 0, id="one kept look does not end it"),
        pytest.param("mkk", 1, None, id="two do"),
        pytest.param("mk-k", 1, None, id="with silence between them too"),
        pytest.param("mkmk", 3, 0, id="a value that wavers is one breach"),
        pytest.param("mkkm", None, 3, id="a new breach has its own beginning"),
        pytest.param("mpp", 1, None, id="where TTFT has no query, the speed ends it"),
    ],
)
def test_since_when(looks: str, kept_since: int | None, breached_since: int | None) -> None:
    status = after(looks)
    assert status.kept_since == (None if kept_since is None else minute(kept_since))
    assert status.breached_since == (None if breached_since is None else minute(breached_since))


@pytest.mark.parametrize(
    ("looks", "want"),
    [
        pytest.param("mmmm", True, id="missed for three minutes"),
        pytest.param("mmm", False, id="not long enough"),
        pytest.param("mm-m", True, id="a moment of silence"),
        pytest.param("mmmm-", False, id="silence is no breach, however long the one before it was"),
        pytest.param("mmmk", False, id="the last look kept it"),
        pytest.param("kkkk", False, id="kept"),
    ],
)
def test_a_breach_calls_for_a_search_once_looks_have_shown_it_long_enough(looks: str, want: bool) -> None:
    assert breach_calls_for_search(after(looks), BREACH) is want


def test_a_breach_calls_for_nothing_where_it_is_no_trigger() -> None:
    assert not breach_calls_for_search(after("mmmmmmm"), Retune(breach_for="3m"))


def test_an_hour_of_silence_between_two_misses_is_not_an_hour_of_breach() -> None:
    status = after("m" + "-" * 60 + "m")
    assert status.breached_since == minute(61)


def test_a_long_interval_is_no_silence() -> None:
    assert after("mmm", step_m=30).breached_since == minute(0)


def test_a_breach_goes_on_when_only_every_tenth_minute_was_saved() -> None:
    saved = after("m")
    later = observe(MISSED, PROMISE, saved, now=THEN + timedelta(minutes=11), interval_s=60)
    assert later.breached_since == minute(0)


@given(st.text("km-p", min_size=1, max_size=40))
def test_laws_of_a_breach(looks: str) -> None:
    status = after(looks)
    deciding = looks.replace("-", "").replace("p", "k")
    if deciding.endswith("m"):
        assert status.breached_since is not None
        assert status.kept_since is None
    if deciding.endswith("kk") or "m" not in deciding:
        assert status.breached_since is None
    if looks.endswith("-"):
        assert status.breached_since == (after(looks[:-1]).breached_since if looks[:-1] else None)
    if breach_calls_for_search(status, BREACH):
        assert looks.endswith("m")


@given(st.text("km-p", min_size=1, max_size=12))
def test_a_status_survives_being_written_and_read(looks: str) -> None:
    status = after(looks)
    assert Production.model_validate(status.model_dump(by_alias=True, exclude_none=True)) == status


@pytest.mark.parametrize(
    ("seen", "slo", "want"),
    [
        (look(), PROMISE, "Value"),
        (look(NoData()), PROMISE, "NoData"),
        (look(0.7, NotANumber()), PROMISE, "NotANumber"),
        (look(SeveralSeries(2), NoData()), PROMISE, "SeveralSeries"),
        (look(Unreachable("down"), Unreachable("down")), PROMISE, "Unreachable"),
        (look(None, 44), PROMISE, "Value"),
        (look(None, NoData()), SLO(ttft_p95="1s"), "NoData"),
        (look(0.7, NoData()), SLO(ttft_p95="1s"), "Value"),
    ],
)
def test_the_state_tells_a_value_from_every_way_of_having_none(seen: Look, slo: SLO, want: str) -> None:
    assert observe(seen, slo, None, now=THEN, interval_s=60).state == want


def test_a_number_does_not_outlive_its_look() -> None:
    status = after("k-")
    assert (status.ttft_p95, status.tokens_per_second) == (None, "44")
    assert status.observed_at == minute(1)


def test_the_numbers_are_written_as_people_read_them() -> None:
    seen = Look(Value(0.70612), Value(43.9876), True, Value(3.2), Value(0.0), Value(1523.456))
    status = observe(seen, PROMISE, None, now=THEN, interval_s=60)
    assert status.ttft_p95 == "706ms"
    assert (status.tokens_per_second, status.prompt_tokens_per_second) == ("43.99", "1523")
    assert (status.requests_processing, status.requests_deferred) == ("3.2", "0")


@pytest.mark.parametrize(
    ("seen", "measured", "want"),
    [
        pytest.param(
            look(0.71, 41),
            MEASURED,
            "production p95 TTFT 0.71 s, measured 0.62 s; 41 tok/s per user, measured 44",
            id="beside each other",
        ),
        pytest.param(
            look(1.4, 20),
            None,
            "production p95 TTFT 1.4 s, owed 1 s; 20 tok/s per user, owed 30",
            id="missed, and nothing was measured",
        ),
        pytest.param(
            look(0.71, 41, speed_is_mean=True, requests_processing=Value(3.2), requests_deferred=Value(1.1)),
            MEASURED,
            "production p95 TTFT 0.71 s, measured 0.62 s; 41 tok/s per user on average, measured 44 for 95 % of users;"
            " on average 3.2 requests at work and 1.1 waiting",
            id="from counters",
        ),
        pytest.param(
            look(None, 41),
            None,
            "p95 TTFT is not looked at: llama-server counts no latencies, so a query of what stands in front of it is"
            " needed (observe.prometheus.ttftQuery); 41 tok/s per user",
            id="no query for TTFT",
        ),
        pytest.param(
            look(NotANumber(), NoData()),
            MEASURED,
            "production p95 TTFT unknown: NaN: nothing was served while it looked; production tok/s unknown:"
            " no series matches: are the pods scraped, and do its labels exist?",
            id="two reasons",
        ),
        pytest.param(
            look(Unreachable("http://p: down"), Unreachable("http://p: down")),
            None,
            "production p95 TTFT unknown: http://p: down",
            id="one reason for both is said once",
        ),
        pytest.param(
            look(Value(0.7, ("one store is down",)), Value(44, ("one store is down",))),
            None,
            "production p95 TTFT 0.7 s; 44 tok/s per user; Prometheus warns: one store is down",
            id="a warning",
        ),
    ],
)
def test_one_line_says_it_all(seen: Look, measured: Measured | None, want: str) -> None:
    assert beside(seen, PROMISE, measured) == want


@pytest.mark.parametrize("reading", [SeveralSeries(10**9), Unreachable("x" * 5000), NotANumber("a text")])
def test_a_message_fits_into_the_status(reading: Reading) -> None:
    assert len(observe(look(reading, reading), PROMISE, None, now=THEN, interval_s=60).message) <= 4096


def test_the_next_look_comes_an_interval_after_the_last() -> None:
    status = after("k")
    assert next_look(None, 60, now=THEN) == THEN
    assert next_look(status, 60, now=THEN) == THEN + timedelta(seconds=60)
    assert next_look(status, 60, now=THEN - timedelta(hours=1)) == THEN - timedelta(hours=1)


@pytest.mark.parametrize(
    ("seen", "minutes", "want"),
    [
        pytest.param(look(0.7, 44), 1, False, id="nothing new"),
        pytest.param(look(0.72, 44.5), 1, False, id="a new second digit"),
        pytest.param(look(0.8, 44), 1, True, id="slower by a seventh"),
        pytest.param(look(0.7, 40), 1, True, id="fewer tokens"),
        pytest.param(look(0.7, 44), 10, True, id="ten minutes have passed"),
        pytest.param(look(NoData(), 44), 1, True, id="no data any more"),
        pytest.param(look(1.4, 44), 1, True, id="a breach begins"),
    ],
)
def test_a_status_is_written_when_it_says_something_new(seen: Look, minutes: int, want: bool) -> None:
    saved = after("k")
    current = observe(seen, PROMISE, saved, now=THEN + timedelta(minutes=minutes), interval_s=60)
    assert worth_saving(saved, current) is want
    assert worth_saving(None, current)
