"""What a load client says arrives whole or not at all: exact numbers, 4 KiB at the end, any noise in between."""

from __future__ import annotations

import gzip
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.sandbox.protocol import Progress
from slotune.sandbox.report_stream import (
    LINE_LIMIT,
    SUMMARY_LIMIT,
    ClientLog,
    frames,
    parse_client_log,
    payloads,
    progress_line,
    record_frames,
    record_of,
    result_frames,
    result_from_summary,
    stopped_line,
    summary_limit,
    summary_of,
)
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict

TRIAL = Trial(Candidate("only", "cpu", 2, 256), 1 / 3, 1, 0.9, 2, Purpose.CONFIRM, 12.5)

NUMBERS = st.floats(allow_nan=False)
SOME = st.none() | NUMBERS
TEXTS = st.text(max_size=200)
VERDICTS = st.builds(
    Verdict,
    st.sampled_from(Outcome),
    st.text(max_size=6000),
    TEXTS,
    NUMBERS,
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    *[SOME] * 6,
)
LATENCIES = st.builds(Latencies, *[SOME] * 6, st.lists(NUMBERS, max_size=101).map(tuple), *[SOME] * 3)
ATTRIBUTIONS = st.none() | st.builds(Attribution, *[NUMBERS] * 4, SOME, SOME)
RESULTS = st.builds(
    TrialResult,
    st.just(TRIAL),
    VERDICTS,
    NUMBERS,
    st.none() | st.sampled_from(FailureClass),
    st.none() | TEXTS,
    st.none() | st.builds(IdleProbe, NUMBERS, NUMBERS, NUMBERS, SOME, SOME),
    LATENCIES,
    ATTRIBUTIONS,
    ATTRIBUTIONS,
    st.integers(0, 10**9),
    st.lists(NUMBERS, max_size=50).map(tuple),
    *[st.none() | st.integers(0, 2**63)] * 3,
    st.lists(st.tuples(TEXTS, TEXTS), max_size=20).map(tuple),
    *[st.lists(TEXTS, max_size=20).map(tuple)] * 3,
    TEXTS,
)


def runs(requests: int, late: int = 0) -> list[RunResult]:
    """One run; the last ``late`` requests never ended."""
    records = [
        RequestRecord(n, n, n / 7, RequestStatus.OK if n < requests - late else RequestStatus.UNFINISHED, n / 7 + 1e-3)
        for n in range(requests)
    ]
    return [RunResult(seed=5, rate=2.0, records=records)]


def log_of(lines: list[bytes]) -> str:
    return b"".join(lines).decode()


@settings(max_examples=150, deadline=None)
@given(RESULTS)
def test_a_result_comes_out_of_the_log_exactly_as_it_went_in(result):
    lines = [*result_frames(result)]
    assert all(len(line) <= LINE_LIMIT for line in lines)
    assert parse_client_log(log_of(lines), TRIAL).result == result


@settings(max_examples=150, deadline=None)
@given(RESULTS, st.integers(1024, SUMMARY_LIMIT))
def test_a_summary_fits_whatever_the_result_and_never_loses_the_outcome(result, limit):
    summary = summary_of(result, limit)
    assert len(summary) <= limit
    json.loads(summary)
    back = result_from_summary(summary, TRIAL)
    assert back is not None
    assert (back.verdict.outcome, back.gpu_seconds) == (result.verdict.outcome, result.gpu_seconds)


def test_a_summary_says_what_it_left_out_and_quantiles_go_first():
    full = TrialResult(
        TRIAL,
        Verdict(Outcome.PASS, "it held", "PromiseKept", 0.9, ttft_p95_s=1 / 3),
        31.25,
        latencies=Latencies(ttft_p50_s=0.1, ttft_quantiles_s=tuple(n / 7 for n in range(101))),
        trace_hashes=("a" * 64,) * 50,
    )
    back = result_from_summary(summary_of(full), TRIAL)
    assert back is not None
    assert back.verdict == full.verdict
    assert back.latencies == Latencies(ttft_p50_s=0.1)
    assert b'"leftOut":["latencies.ttft_quantiles_s"' in summary_of(full)


def test_a_small_result_is_whole_in_its_summary():
    small = TrialResult(TRIAL, Verdict(Outcome.FAIL, "no", "BadFlag", 0.9), 1.5, FailureClass.BAD_FLAG, "--nope")
    assert result_from_summary(summary_of(small), TRIAL) == small


def test_kubelet_divides_twelve_kib_among_all_containers():
    assert summary_limit(2) == 4096
    assert summary_limit(5) == 2457


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"killed", b'{"verdict":{"outcome":"Perhaps"}}'])
def test_a_termination_message_that_is_no_summary_is_none(text):
    assert result_from_summary(text, TRIAL) is None


SMALL = TrialResult(TRIAL, Verdict(Outcome.PASS, "it held", "PromiseKept", 0.9), 1.5)
PARTS = [*frames("record", bytes(range(256)) * 100)]


@given(st.lists(st.binary(max_size=60), max_size=5), st.randoms(use_true_random=False))
def test_lines_of_others_and_another_order_do_no_harm(noise, chance):
    lines = [*result_frames(SMALL), *PARTS, *(line.replace(b"\n", b"") + b"\n" for line in noise)]
    chance.shuffle(lines)
    text = b"".join(lines).decode(errors="replace")
    log = parse_client_log(text, TRIAL)
    assert log.result == SMALL
    assert log.record == bytes(range(256)) * 100


def test_a_half_line_of_another_process_before_ours_does_no_harm():
    text = "Traceback (most rec" + log_of([*result_frames(SMALL)])
    assert parse_client_log(text, TRIAL).result == SMALL


@pytest.mark.parametrize("lost", range(len(PARTS)))
def test_a_lost_line_means_no_record_rather_than_another_one(lost):
    lines = [line for number, line in enumerate(PARTS) if number != lost]
    log = parse_client_log(log_of([*result_frames(SMALL), *lines]), TRIAL)
    assert log == ClientLog(result=SMALL, broken=("record",))


def test_a_byte_that_changed_on_the_way_means_no_record():
    text = log_of(PARTS)
    place = text.index('"data":"') + 20
    changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
    assert parse_client_log(changed, TRIAL) == ClientLog(broken=("record",))


@given(st.integers(0, 3000))
def test_a_log_that_is_cut_anywhere_gives_the_whole_result_or_none(cut):
    text = log_of([progress_line(Progress("probing")), *result_frames(SMALL)])
    assert parse_client_log(text[:cut], TRIAL).result in (None, SMALL)


def test_the_last_of_two_whole_payloads_counts_and_a_broken_one_does_not_hide_it():
    lines = [*frames("record", b"one"), *frames("record", b"two"), PARTS[0]]
    assert payloads(log_of(lines), ["record"])["record"] == b"two"


def test_the_last_progress_and_the_end_are_told():
    lines = [progress_line(Progress("probing")), progress_line(Progress("measuring", 2, 5, 7)), stopped_line("SIGTERM")]
    log = parse_client_log(log_of(lines), TRIAL)
    assert log.progress == Progress("measuring", 2, 5, 7)
    assert log.stopped == "SIGTERM"


def test_infinite_numbers_survive_json_which_has_none():
    fast = TrialResult(TRIAL, Verdict(Outcome.PASS, "", "x", 0.9, tokens_per_second_p5=math.inf), 0.0)
    assert parse_client_log(log_of([*result_frames(fast)]), TRIAL).result == fast
    assert "Infinity" not in log_of([*result_frames(fast)])


def test_a_record_has_a_line_per_request_and_no_prompt():
    record = record_of(runs(3))
    assert record is not None
    lines = [json.loads(line) for line in gzip.decompress(record).splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2]
    assert lines[1]["sent_s"] == 1 / 7 + 1e-3
    assert record_of([]) is None
    assert parse_client_log(log_of([*record_frames(record)]), TRIAL).record == record


def test_a_record_that_is_too_large_is_thinned_keeps_every_violation_and_says_so():
    record = record_of(runs(4000, late=50), limit=20_000)
    assert record is not None
    assert len(record) <= 20_000
    note, *lines = [json.loads(line) for line in gzip.decompress(record).splitlines()]
    assert note["requests"] == 4000
    assert note["every"] > 1
    assert sum(line["status"] == "unfinished" for line in lines) == 50
