"""TTFT is split into parts that add up, with what each server lets the client see."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.diagnose.attribution import attribute, attribute_runs, slowest
from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.load.summary import Attribution, IdleProbe
from slotune.search.trial import Trial
from tests.simulator import machines_for, simulate, space_384
from tests.simulator.sandbox import probe as simulated_probe

PROBE = IdleProbe(overhead_s=0.02, prefill_tokens_per_s=10_000, decode_step_s=0.01)


def request(index: int = 0, **changes: object) -> RequestRecord:
    """Queued 2.4 s, read 4,000 tokens in 0.4 s at idle speed, 20 ms on the way."""
    record = RequestRecord(
        index=index,
        prompt_id=index,
        scheduled_s=1.0,
        status=RequestStatus.OK,
        sent_s=1.0,
        headers_s=3.42,
        first_token_s=3.82,
        prompt_tokens=4000,
        cached_tokens=0,
        prompt_ms=400,
    )
    return replace(record, **changes)  # type: ignore[arg-type]  # a test's shorthand


def total(parts: Attribution) -> float:
    return parts.queue_s + parts.prefill_s + parts.contention_s + parts.overhead_s


def one(record: RequestRecord) -> Attribution:
    parts = attribute([record], PROBE)
    assert parts is not None
    return parts


def test_the_worked_example_is_mostly_queue() -> None:
    parts = one(request())
    assert parts.queue_s == pytest.approx(2.4)
    assert parts.prefill_s == pytest.approx(0.4)
    assert parts.contention_s == pytest.approx(0.0)
    assert parts.overhead_s == pytest.approx(0.02)


def test_reading_slower_than_an_idle_server_is_contention() -> None:
    parts = one(request(first_token_s=4.82))
    assert parts.prefill_s == pytest.approx(0.4)
    assert parts.contention_s == pytest.approx(1.0)


def test_cached_tokens_cost_nothing_to_read() -> None:
    parts = one(request(prompt_tokens=500, cached_tokens=3500, first_token_s=3.47))
    assert parts.prefill_s == pytest.approx(0.05)
    assert parts.cached_share == pytest.approx(0.875)


def test_a_client_that_sent_late_is_overhead_not_queue() -> None:
    parts = one(request(scheduled_s=0.5))
    assert parts.queue_s == pytest.approx(2.4)
    assert parts.overhead_s == pytest.approx(0.52)


def test_without_headers_the_servers_clock_says_how_long_the_prompt_took() -> None:
    parts = one(request(headers_s=None))
    assert parts.queue_s == pytest.approx(2.4)
    assert parts.prefill_s == pytest.approx(0.4)


def test_without_any_of_that_nothing_is_called_a_queue() -> None:
    parts = one(request(headers_s=None, prompt_ms=None, prompt_tokens=None))
    assert parts.queue_s == 0
    assert parts.prefill_s == pytest.approx(2.82)


def test_an_answer_faster_than_the_idle_probe_has_no_negative_parts() -> None:
    parts = one(request(headers_s=1.001, first_token_s=1.1))
    assert parts.queue_s == parts.contention_s == 0
    assert total(parts) == pytest.approx(0.1)


def test_requests_without_a_token_have_no_parts() -> None:
    assert attribute([request(first_token_s=None)], PROBE) is None
    assert attribute([], PROBE) is None


def test_a_server_that_never_said_is_not_a_cache_that_never_hit() -> None:
    assert one(request(cached_tokens=None)).cached_share is None
    assert one(request(cached_tokens=0)).cached_share == 0


def test_the_slowest_are_one_in_twenty_and_at_least_one() -> None:
    records = [request(i, first_token_s=3.5 + i / 100) for i in range(40)] + [request(99, first_token_s=None)]
    assert [record.index for record in slowest(records)] == [39, 38]
    assert [record.index for record in slowest(records[:3])] == [2]
    assert slowest([]) == []


def test_busy_slots_come_from_counters_first_then_from_samples() -> None:
    sampled = RunResult(seed=1, rate=1.0, records=[request()], busy_samples=[(0.0, 2, 0), (1.0, 4, 1)])
    counted = replace(sampled, busy_slots=6.5)
    silent = replace(sampled, busy_samples=[])
    for run, want in ((sampled, 3.0), (counted, 6.5), (silent, None)):
        overall, tail = attribute_runs([run], PROBE)
        assert overall is not None
        assert tail is not None
        assert overall.busy_slots == want


def test_what_an_overloaded_server_never_answered_was_waiting_in_its_queue() -> None:
    waiting = [RequestRecord(index=i, prompt_id=i, scheduled_s=float(i), sent_s=float(i)) for i in range(20)]
    overall, tail = attribute_runs([RunResult(seed=1, rate=1.0, records=waiting, stopped_early=True)], PROBE)
    assert overall is None
    assert tail is not None
    assert tail.queue_s == pytest.approx(19 - 0.02)
    assert tail.prefill_s == tail.contention_s == 0


def test_a_request_that_had_a_slot_when_it_was_cut_off_was_being_read() -> None:
    reading = RequestRecord(index=0, prompt_id=0, scheduled_s=0.0, sent_s=0.0, headers_s=0.02)
    last = RequestRecord(index=1, prompt_id=1, scheduled_s=3.02, sent_s=3.02)
    _, tail = attribute_runs([RunResult(seed=1, rate=1.0, records=[reading, last], stopped_early=True)], PROBE)
    assert tail is not None
    assert tail.prefill_s == pytest.approx(3.0)
    assert tail.queue_s == pytest.approx(0.0)


def test_a_failed_request_is_not_taken_for_one_that_waited() -> None:
    refused = request(0, status=RequestStatus.REFUSED, headers_s=None, first_token_s=None)
    run = RunResult(seed=1, rate=1.0, records=[refused], stopped_early=True)
    assert attribute_runs([run], PROBE) == (None, None)


moments = st.one_of(st.none(), st.floats(0, 20))


@given(
    sent=st.floats(0, 1),
    headers=moments,
    first=st.floats(0, 20),
    tokens=st.one_of(st.none(), st.integers(0, 100_000)),
    prompt_ms=st.one_of(st.none(), st.floats(0, 30_000)),
)
def test_parts_are_never_negative_and_add_up_to_ttft(
    sent: float, headers: float | None, first: float, tokens: int | None, prompt_ms: float | None
) -> None:
    record = request(
        scheduled_s=0.0,
        sent_s=sent,
        headers_s=headers,
        first_token_s=sent + first,
        prompt_tokens=tokens,
        prompt_ms=prompt_ms,
    )
    parts = one(record)
    assert min(parts.queue_s, parts.prefill_s, parts.contention_s, parts.overhead_s) >= 0
    assert total(parts) == pytest.approx(sent + first, abs=1e-9)


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0])
def test_over_a_simulated_run_the_parts_add_up_to_mean_ttft(rate: float) -> None:
    problem = space_384()
    candidate = problem.candidates[-1]
    machine = machines_for(problem)[candidate.gpu_class]
    run = simulate(candidate, problem.models[candidate.variant], machine, problem.demand, rate, seed=1)
    parts = attribute(run.records, simulated_probe(Trial(candidate, rate), problem, machine))
    assert parts is not None
    mean = sum(record.ttft_s or 0.0 for record in run.records) / len(run.records)
    assert total(parts) == pytest.approx(mean, rel=0.05)


def test_slots_that_were_free_in_quiet_stretches_do_not_hide_that_all_were_busy_in_the_burst() -> None:
    calm, burst = [(float(t), 1, 0) for t in range(60)], (2.0, 8, 3)
    run = RunResult(seed=1, rate=1.0, records=[request()], busy_samples=[*calm, burst], busy_slots=1.1)
    overall, tail = attribute_runs([run], PROBE)
    assert overall is not None
    assert tail is not None
    assert overall.busy_slots == pytest.approx(1.1)
    assert tail.busy_slots == 8


def test_without_a_sample_at_the_moment_of_waiting_nothing_is_claimed_about_slots() -> None:
    run = RunResult(seed=1, rate=1.0, records=[request()], busy_samples=[(50.0, 1, 0)])
    _, tail = attribute_runs([run], PROBE)
    assert tail is not None
    assert tail.busy_slots is None
