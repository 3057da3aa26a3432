"""Events tell each transition once, in a form that the API server takes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.controller.conditions import Claim, with_claims
from slotune.controller.events import MOST_NOTE_BYTES, EventNote, event_object, transitions, trial_ended
from slotune.controller.reasons import ConditionType, Reason
from slotune.llama.failures import FailureClass
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import candidate

T = ConditionType
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
REGARDING = {
    "apiVersion": "slotune.dev/v1alpha1",
    "kind": "LlamaDeployment",
    "name": "chat",
    "namespace": "prod",
    "uid": "1-2-3",
    "labels": {"team": "a"},
}


def conditions(*claims: Claim, before=(), at=NOW):
    return with_claims(before, claims, generation=1, now=at)


def posted(note: EventNote, now: datetime = NOW) -> dict:
    return event_object(note, REGARDING, now=now, reporting_instance="slotune-7c9d")


def test_first_sight_is_no_event():
    assert transitions((), conditions()) == ()


def test_a_changed_message_alone_is_no_event():
    before = conditions(Claim.true(T.RECONCILING, Reason.SEARCHING, "1 of 200 requests"))
    after = conditions(Claim.true(T.RECONCILING, Reason.SEARCHING, "2 of 200 requests"), before=before)
    assert transitions(before, after) == ()


def test_several_conditions_that_change_for_one_reason_are_one_event():
    before = conditions(Claim.true(T.RECONCILING, Reason.SEARCHING))
    after = conditions(
        Claim.true(T.SEARCH_COMPLETED, Reason.INFEASIBLE, "nothing can"),
        Claim.false(T.SLO_MET, Reason.INFEASIBLE, "a prompt takes 1.6 s"),
        Claim.true(T.STALLED, Reason.INFEASIBLE, "TTFTPrefill: a prompt takes 1.6 s"),
        Claim.false(T.READY, Reason.INFEASIBLE, "see above"),
        before=before,
    )
    [told] = transitions(before, after)
    assert (told.type, told.reason, told.action) == ("Warning", "Infeasible", "Reconcile")
    assert told.note == "TTFTPrefill: a prompt takes 1.6 s"


@pytest.mark.parametrize(
    ("claim", "want"),
    [
        pytest.param(Claim.true(T.SLO_MET, Reason.SERVING_KEEPS_SLO, "kept"), "Normal", id="the promise is kept"),
        pytest.param(Claim.false(T.SLO_MET, Reason.SERVING_MISSES_SLO, "missed"), "Warning", id="it is missed"),
        pytest.param(Claim.true(T.SEARCH_COMPLETED, Reason.FOUND, "1 × l4"), "Normal", id="an answer"),
        pytest.param(Claim.false(T.ROLLED_OUT, Reason.WOULD_DEADLOCK, "no GPU"), "Warning", id="no way to production"),
        pytest.param(Claim.false(T.ROLLED_OUT, Reason.RECOMMEND_ONLY, "see patch"), "Normal", id="as it was asked for"),
        pytest.param(Claim.false(T.TARGET_RESOLVED, Reason.REFUSED, "a shell"), "Warning", id="a server unread"),
        pytest.param(Claim.true(T.RECONCILING, Reason.MEASURING, "trial 1"), "Normal", id="work begins"),
    ],
)
def test_bad_news_warns_and_good_news_does_not(claim, want):
    before = conditions()
    [told] = transitions(before, conditions(claim, before=before))
    assert (told.type, told.reason, told.note) == (want, claim.reason, claim.message)


def test_posting_twice_meets_the_same_object_and_the_same_news_later_does_not():
    before = conditions()
    first = transitions(before, conditions(Claim.true(T.SLO_MET, Reason.SERVING_KEEPS_SLO, "kept"), before=before))
    again = transitions(
        before,
        conditions(Claim.true(T.SLO_MET, Reason.SERVING_KEEPS_SLO, "kept"), before=before, at=NOW + timedelta(1)),
    )
    names = [posted(note, NOW + timedelta(seconds=number))["metadata"]["name"] for number, note in enumerate(first * 2)]
    assert names[0] == names[1]
    assert posted(again[0])["metadata"]["name"] != names[0]


def test_an_event_has_all_that_the_api_server_asks_for():
    made = posted(EventNote("Normal", "Found", "Search", "the answer\nis 1 × l4"))
    assert made["eventTime"] == "2026-01-31T12:00:00.000000Z"
    assert made["metadata"]["namespace"] == "prod"
    assert made["note"] == "the answer is 1 × l4"
    assert made["regarding"] == {key: REGARDING[key] for key in ("apiVersion", "kind", "namespace", "name", "uid")}
    assert made["reportingController"] == "slotune.dev/operator"
    assert made["reportingInstance"] == "slotune-7c9d"


def test_an_event_about_a_cluster_wide_object_lives_in_default():
    made = event_object(
        EventNote("Normal", "Found", "Search", "x"), {"kind": "GPUClass", "name": "l4"}, now=NOW, reporting_instance="a"
    )
    assert made["metadata"]["namespace"] == "default"


@settings(deadline=None)
@given(st.text(max_size=40) | st.just("×" * 2000) | st.just("\ud800"), st.text(max_size=300), st.text(max_size=200))
def test_no_text_makes_an_event_that_would_be_refused(text, name, instance):
    note = EventNote("Normal", text, text, text, text)
    made = event_object(note, REGARDING | {"name": f"a{name}"}, now=NOW, reporting_instance=instance)
    assert len(made["note"].encode()) <= MOST_NOTE_BYTES
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_,:]{0,127}", made["reason"])
    assert 0 < len(made["reportingInstance"]) <= 128
    assert len(made["metadata"]["name"]) <= 253


@pytest.mark.parametrize(
    ("outcome", "failure", "want"),
    [
        (Outcome.PASS, None, ("Normal", "TrialPassed", "16 slots at 1.5/s: Pass (Said): why [chat-1]")),
        (
            Outcome.FAIL,
            FailureClass.OUT_OF_MEMORY_KV,
            ("Normal", "TrialFailed", "16 slots at 1.5/s: Fail (OutOfMemoryKV): why [chat-1]"),
        ),
        (Outcome.INVALID, None, ("Warning", "TrialInvalid", "16 slots at 1.5/s: Invalid (Said): why [chat-1]")),
    ],
)
def test_the_end_of_a_trial_says_what_was_measured_and_what_came_of_it(outcome, failure, want):
    result = TrialResult(Trial(candidate(), 1.5), Verdict(outcome, "why", "Said", 0.95), 30.0, failure=failure)
    told = trial_ended("chat-1", result, "16 slots at 1.5/s")
    assert told is not None
    assert (told.type, told.reason, told.note) == want


def test_the_end_of_a_trial_names_the_first_cause_with_its_identifier_where_one_is_known():
    result = TrialResult(Trial(candidate(), 1.5), Verdict(Outcome.FAIL, "why", "Said", 0.95), 30.0)
    told = trial_ended("chat-1", result, "16 slots at 1.5/s", "queue 2.4 s of 2.8: 8 slots, all busy (SLT050)")
    assert told is not None
    assert told.note == "16 slots at 1.5/s: Fail (Said): queue 2.4 s of 2.8: 8 slots, all busy (SLT050) [chat-1]"


def test_a_sentinel_is_no_news():
    result = TrialResult(
        Trial(candidate(), 1.5, purpose=Purpose.SENTINEL), Verdict(Outcome.PASS, "same", "Same", 0.95), 5.0
    )
    assert trial_ended("chat-2", result, "idle") is None
