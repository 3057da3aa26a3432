"""A gate finds faults of the measurement: not small numbers, and never a slow server."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.load.gates import GATES, check_run, lag_limit_s, nearly_largest
from slotune.load.records import RequestRecord, RequestStatus, RunResult


def record(index: int, *, lag_s: float = 0.0, took_s: float = 1.0, ttft_s: float = 0.2) -> RequestRecord:
    """Return a request of a trace of two per second."""
    due = index * 0.5
    return RequestRecord(
        index=index,
        prompt_id=index,
        scheduled_s=due,
        status=RequestStatus.OK,
        sent_s=due + lag_s,
        headers_s=due + lag_s,
        first_token_s=due + ttft_s,
        last_token_s=due + lag_s + took_s,
        finished_s=due + lag_s + took_s,
        token_events=10,
        output_tokens=10,
    )


def run(*records: RequestRecord) -> RunResult:
    """Return a sound run of these records."""
    result = RunResult(seed=1, rate=2.0, records=list(records), window_s=len(records) / 2)
    result.in_flight_area_s = sum((one.finished_s or 0) - (one.sent_s or 0) for one in records if one.finished_s)
    result.output_tokens_known = sum(one.output_tokens or 0 for one in records)
    result.server_output_tokens = result.output_tokens_known
    return result


def codes(result: RunResult, ttft_s: float | None = 1.0) -> list[str]:
    return [code for code, _ in check_run(result, ttft_s)]


def test_the_gates_and_their_order_are_fixed() -> None:
    assert [code for code, _ in GATES] == [
        "ClientOutOfResources",
        "ClientLate",
        "LagMadeViolations",
        "ClientLoopSlow",
        "ClientCPUFull",
        "RateOff",
        "LittlesLaw",
        "ServerBusyBefore",
        "CountersDisagree",
        "NoTokenCounts",
        "StreamBuffered",
    ]


@given(st.integers(0, 300), st.floats(0.05, 500.0), st.floats(0.0, 0.009), st.floats(0.05, 10))
def test_no_server_however_slow_makes_a_run_invalid(count: int, took_s: float, lag_s: float, ttft_s: float) -> None:
    """An overloaded candidate must fail, not be excused; nor may a run be too small for its gates."""
    ttfts = [lag_s + took_s * (index + 1) / (count + 1) for index in range(count)]
    records = [record(index, lag_s=lag_s, took_s=took_s, ttft_s=ttfts[index]) for index in range(count)]
    found = codes(run(*records), ttft_s)
    assert set(found) <= {"LagMadeViolations"}
    if lag_s <= 0.01 * ttft_s:
        assert found == []


def test_a_late_client_is_found_from_the_second_late_request_on() -> None:
    on_time = [record(index) for index in range(12)]
    assert codes(run(*on_time[:11], record(11, lag_s=0.02))) == []
    assert codes(run(*on_time[:10], record(10, lag_s=0.02), record(11, lag_s=0.02))) == ["ClientLate"]


def test_one_late_request_in_a_hundred_is_allowed_and_two_are_not() -> None:
    def late(count: int) -> list[str]:
        return codes(run(*(record(index, lag_s=0.02 if 5 <= index < 5 + count else 0.0) for index in range(400))))

    assert late(4) == []
    assert late(5) == ["ClientLate"]


@pytest.mark.parametrize(("ttft_s", "limit"), [(None, 0.010), (0.1, 0.010), (1.0, 0.010), (5.0, 0.050)])
def test_lag_may_be_ten_milliseconds_or_one_percent_of_the_target(ttft_s: float | None, limit: float) -> None:
    assert lag_limit_s(ttft_s) == pytest.approx(limit)


def test_lag_that_turns_a_request_in_time_into_a_violation_decides_and_is_found() -> None:
    on_time = [record(index, ttft_s=0.05) for index in range(300)]
    # 8 ms is within 10 ms, but the target of 100 ms would have been kept without it.
    assert codes(run(*on_time, record(300, lag_s=0.008, ttft_s=0.105)), 0.1) == ["LagMadeViolations"]
    assert codes(run(*on_time, record(300, lag_s=0.008, ttft_s=0.150)), 0.1) == []
    assert codes(run(*on_time, record(300, lag_s=0.008, ttft_s=0.099)), 0.1) == []
    assert codes(run(*on_time, record(300, lag_s=0.0005, ttft_s=0.1001)), 0.1) == []


def test_a_pace_that_is_off_is_found_and_a_short_run_is_not_blamed_for_its_length() -> None:
    drifting = [record(index, lag_s=0.03 * index) for index in range(50)]
    assert "RateOff" in codes(run(*drifting))
    assert codes(run(record(0), record(1, lag_s=0.009))) == []
    burst = [RequestRecord(i, i, scheduled_s=i * 0.5, status=RequestStatus.REFUSED, sent_s=0.0) for i in range(10)]
    assert "RateOff" in codes(run(*burst))


def test_a_lost_record_breaks_littles_law() -> None:
    sound = run(*(record(index) for index in range(12)))
    assert codes(sound) == []
    sound.records.pop()
    assert codes(sound) == ["LittlesLaw"]
    nothing = run(RequestRecord(0, 0, 0.0, sent_s=0.0))
    nothing.in_flight_area_s = 1e-9
    assert codes(nothing) == []
    sound.stopped_early = True
    assert codes(sound) == []


@pytest.mark.parametrize(
    ("server", "least", "most", "want"),
    [
        (120, 0, 0, []),
        (121, 0, 0, []),
        (125, 0, 0, ["CountersDisagree"]),
        (60, 0, 0, ["CountersDisagree"]),
        (None, 0, 0, []),
        (125, 3, 10, []),
        (120, 3, 10, ["CountersDisagree"]),
        (140, 3, 10, ["CountersDisagree"]),
    ],
)
def test_the_servers_counter_must_lie_where_the_answers_say(
    server: int | None, least: int, most: int, want: list[str]
) -> None:
    result = run(*(record(index) for index in range(12)))
    result.server_output_tokens = server
    result.output_tokens_least, result.output_tokens_most = least, most
    assert codes(result) == want


def spoil(name: str, value: float) -> Callable[[RunResult], None]:
    return lambda result: setattr(result, name, value)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (spoil("client_faults", 1), ["ClientOutOfResources"]),
        (spoil("busy_before", 1), ["ServerBusyBefore"]),
        (spoil("loop_lag_p99_s", 0.009), []),
        (spoil("loop_lag_p99_s", 0.011), ["ClientLoopSlow"]),
        (spoil("client_cpu_share", 0.70), []),
        (spoil("client_cpu_share", 0.71), ["ClientCPUFull"]),
    ],
)
def test_a_client_without_room_is_found(change: Callable[[RunResult], None], want: list[str]) -> None:
    result = run(*(record(index) for index in range(12)))
    change(result)
    assert codes(result) == want


def test_answers_without_counts_are_invalid_and_not_failed() -> None:
    silent = record(0)
    silent.output_tokens = None
    assert codes(run(silent, record(1))) == ["NoTokenCounts"]


def test_answers_that_come_in_one_piece_are_buffered_somewhere() -> None:
    whole = [record(index) for index in range(10)]
    for one in whole[:6]:
        one.token_events = 1
    assert codes(run(*whole)) == ["StreamBuffered"]
    for one in whole:
        one.output_tokens = 3
    assert codes(run(*whole)) == []


def test_every_finding_is_a_sentence_with_a_number() -> None:
    worst = run(*(record(index, lag_s=0.5 * index, ttft_s=1.2 + 0.3 * index) for index in range(10)))
    worst.client_faults, worst.loop_lag_p99_s, worst.client_cpu_share = 3, 1.0, 0.9
    worst.in_flight_area_s, worst.server_output_tokens = 1.0, 5
    for one in worst.records:
        one.token_events = 1
    found = check_run(worst, 1.0)
    assert len(found) >= 8
    for _, sentence in found:
        assert any(character.isdigit() for character in sentence)
        assert ": " in sentence


@given(st.lists(st.floats(0, 1), max_size=300))
def test_the_nearly_largest_value_has_at_most_one_percent_above_it_or_one(values: list[float]) -> None:
    above = sum(value > nearly_largest(values) for value in values)
    assert above <= max(1, len(values) // 100)
