"""Recorded answers that have travelled are those that were recorded, or none, whatever came over them on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.quality.coarse import Likeliest
from slotune.quality.reference import BYTES_MAX, BrokenReferenceError, Reference, Walk
from slotune.sandbox.judgement import Ended
from slotune.sandbox.pod_case import CLIENT_END
from slotune.sandbox.reference_check import not_as_recorded, read_reference
from slotune.sandbox.report_stream import parse_client_log, reference_frames, result_frames, summary_of
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict
from tests.sandbox.pods import ended, pod, with_state
from tests.sandbox.test_pod_outcome import ASKED, DONE, judge, log_of


def reference(prompts: int = 2) -> Reference:
    walks = tuple(
        Walk(tuple(range(number, number + 9)), (4, 5), (Likeliest((4, 1), (-0.5, -1.5)), Likeliest((5, 2), (-0.1, -3))))
        for number in range(prompts)
    )
    return Reference(walks, top=2, vocabulary=5000, tokenizer="t")


KEPT = reference().to_bytes()
DIGEST = reference().digest
RECORDS = Trial(replace(ASKED, parallel_slots=1), 0.0, purpose=Purpose.REFERENCE)
RECORDED = TrialResult(
    RECORDS,
    Verdict(Outcome.PASS, "4 steps of 2 prompts were recorded", "ReferenceRecorded", 0.95),
    8.0,
    reference=DIGEST,
)


def judged(log: str, **more: Any) -> Ended:
    found = judge(with_state(pod(), "load-client", ended(0, **more)), logs={CLIENT_END: log}, trial=RECORDS)
    assert isinstance(found, Ended)
    return found


def test_what_was_recorded_arrives_with_the_result():
    found = judged(log_of(*reference_frames(KEPT), *result_frames(RECORDED)))
    assert found.reference == KEPT
    assert (found.result.verdict, found.result.reference) == (RECORDED.verdict, DIGEST)


def test_the_largest_one_that_a_config_map_carries_needs_fewer_lines_than_are_read_of_a_log():
    lines = [*reference_frames(b"x" * BYTES_MAX)]
    assert len(lines) < (CLIENT_END.tail_lines or 0) / 2
    assert max(map(len, lines)) <= 8192


@pytest.mark.parametrize(
    ("log", "code"),
    [
        pytest.param(log_of(*result_frames(RECORDED)), "ResultLost", id="no frame of it"),
        pytest.param(
            log_of(*[*reference_frames(KEPT * 99)][1:], *result_frames(RECORDED)), "ResultLost", id="a frame is missing"
        ),
        pytest.param(
            log_of(*reference_frames(reference(3).to_bytes()), *result_frames(RECORDED)), "ResultLost", id="another one"
        ),
        pytest.param(log_of(*reference_frames(KEPT[:-3]), *result_frames(RECORDED)), "ResultLost", id="cut"),
        pytest.param(
            log_of(*reference_frames(b"x" * (BYTES_MAX + 1)), *result_frames(RECORDED)), "ReferenceTooLarge", id="large"
        ),
    ],
)
def test_a_recording_of_which_the_answers_do_not_arrive_is_invalid(log, code):
    found = judged(log)
    assert (found.result.verdict.outcome, found.result.verdict.code) == (Outcome.INVALID, code)
    assert (found.reference, found.result.reference) == (None, "")


def test_a_result_that_came_over_the_termination_message_alone_has_recorded_nothing():
    found = judged("", message=summary_of(RECORDED).decode())
    assert found.result.verdict.outcome is Outcome.INVALID
    assert "did not arrive" in found.result.verdict.reason


def test_frames_of_answers_in_the_log_of_another_trial_are_not_kept():
    other = replace(RECORDED, trial=replace(RECORDS, purpose=Purpose.QUALITY))
    log = log_of(*reference_frames(KEPT), *result_frames(other))
    found = judge(DONE, logs={CLIENT_END: log}, trial=other.trial)
    assert isinstance(found, Ended)
    assert found.reference is None
    assert found.result.passed


@given(st.data())
def test_no_change_of_a_byte_goes_unseen(data):
    place = data.draw(st.integers(0, len(KEPT) - 1))
    changed = bytearray(KEPT)
    changed[place] ^= data.draw(st.integers(1, 255))
    assert not_as_recorded(bytes(changed), DIGEST) is not None
    with pytest.raises(BrokenReferenceError, match="recorded"):
        read_reference(bytes(changed), DIGEST)


@given(st.integers(0, 2000))
def test_a_log_that_is_cut_anywhere_gives_the_whole_answers_or_none(cut):
    text = log_of(*reference_frames(KEPT))
    assert parse_client_log(text[:cut], RECORDS).reference in (None, KEPT)
