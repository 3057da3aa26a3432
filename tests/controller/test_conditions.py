"""Conditions follow Kubernetes' conventions, so that kubectl wait, kstatus and Argo CD understand them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.api.kubernetes_types import Condition
from slotune.api.v1alpha1.deployment_status import LlamaDeploymentStatus
from slotune.controller.conditions import Claim, claimed, condition, is_true, timestamp, with_claims, without
from slotune.controller.reasons import REASONS_OF, ConditionType, Reason

T = ConditionType
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)

claims = st.lists(
    st.builds(
        Claim,
        st.sampled_from(ConditionType),
        st.sampled_from(["True", "False", "Unknown"]),
        st.sampled_from([*Reason, "of no word", ""]),
        st.text(max_size=20) | st.just("long " * 2000),
    ),
    max_size=6,
)


def types(conditions: tuple[Condition, ...]) -> list[str]:
    return [one.type for one in conditions]


def test_on_first_sight_everything_is_unknown_and_nothing_is_under_way():
    first = with_claims((), [], generation=1, now=NOON)
    assert types(first) == ["Ready", "TargetResolved", "BaselineMeasured", "SearchCompleted", "SLOMet", "RolledOut"]
    assert {one.status for one in first} == {"Unknown"}
    assert {one.observed_generation for one in first} == {1}


def test_the_time_of_a_transition_moves_only_with_the_status():
    one = with_claims((), [Claim.false(T.SLO_MET, Reason.SERVING_MISSES_SLO, "2.8 s")], generation=1, now=NOON)
    two = with_claims(one, [Claim.false(T.SLO_MET, Reason.NOT_ROLLED_OUT, "3.1 s")], generation=2, now=LATER)
    three = with_claims(two, [Claim.true(T.SLO_MET, Reason.SERVING_KEEPS_SLO)], generation=2, now=LATER)
    found = [condition(after, T.SLO_MET) for after in (one, two, three)]
    assert [f.last_transition_time for f in found if f] == [timestamp(NOON), timestamp(NOON), timestamp(LATER)]
    assert [(f.reason, f.message, f.observed_generation) for f in found[1:2] if f] == [("NotRolledOut", "3.1 s", 2)]


def test_a_claim_made_twice_changes_nothing():
    said = [Claim.true(T.RECONCILING, Reason.SEARCHING, "trial 3"), Claim.false(T.READY, Reason.SEARCHING)]
    once = with_claims((), said, generation=1, now=NOON)
    assert with_claims(once, said, generation=1, now=LATER) == once


def test_what_is_not_claimed_stays_with_the_generation_that_it_was_seen_for():
    before = with_claims((), [Claim.true(T.SLO_MET, Reason.SERVING_KEEPS_SLO)], generation=1, now=NOON)
    after = with_claims(before, [Claim.false(T.READY, Reason.SEARCHING)], generation=2, now=LATER)
    kept = condition(after, T.SLO_MET)
    assert kept is not None
    assert (kept.status, kept.observed_generation) == ("True", 1)


@pytest.mark.parametrize(
    ("first", "then", "want"),
    [
        pytest.param([T.RECONCILING], [T.STALLED], "Stalled", id="what stalls is no longer worked at"),
        pytest.param([T.STALLED], [T.RECONCILING], "Reconciling", id="work that goes on is not stalled"),
        pytest.param([], [T.RECONCILING, T.STALLED], "Stalled", id="of both at once Stalled counts"),
    ],
)
def test_reconciling_and_stalled_never_stand_together(first, then, want):
    before = with_claims((), [Claim.true(kind, Reason.PROGRESSING) for kind in first], generation=1, now=NOON)
    after = with_claims(before, [Claim.true(kind, Reason.PROGRESSING) for kind in then], generation=1, now=NOON)
    assert [kind for kind in types(after) if kind in {"Reconciling", "Stalled"}] == [want]


@pytest.mark.parametrize("kind", [T.RECONCILING, T.STALLED])
def test_what_is_no_longer_true_of_them_is_gone(kind):
    before = with_claims((), [Claim.true(kind, Reason.PROGRESSING)], generation=1, now=NOON)
    assert kind in types(before)
    assert kind not in types(with_claims(before, [Claim.false(kind, Reason.PROGRESSING)], generation=1, now=NOON))


def test_conditions_of_others_are_kept_behind_ours():
    foreign = Condition(type="Audited", status="True", last_transition_time=timestamp(NOON), reason="Looked")
    after = with_claims((foreign,), [], generation=1, now=LATER)
    assert after[-1] == foreign


def test_ready_cannot_be_removed_and_all_else_can():
    every = with_claims((), [], generation=1, now=NOON)
    assert without(every, T.READY) == every
    assert "SLOMet" not in types(without(every, T.SLO_MET))


def test_a_time_is_utc_whatever_zone_the_clock_is_in():
    elsewhere = NOON.astimezone(timezone(timedelta(hours=-5)))
    assert timestamp(elsewhere) == timestamp(NOON) == "2026-01-31T12:00:00Z"


def test_of_two_claims_the_later_counts():
    said = [Claim.true(T.READY, Reason.FOUND), Claim.false(T.READY, Reason.PENDING)]
    assert claimed(said, T.READY) == said[1]
    assert not is_true(with_claims((), said, generation=1, now=NOON), T.READY)


@settings(deadline=None)
@given(st.lists(claims, max_size=4))
def test_whatever_is_claimed_the_status_is_valid_and_keeps_the_conventions(rounds):
    conditions: tuple[Condition, ...] = ()
    for number, said in enumerate(rounds, start=1):
        conditions = with_claims(conditions, said, generation=number, now=NOON + timedelta(seconds=number))
        status = LlamaDeploymentStatus(conditions=conditions)
        assert LlamaDeploymentStatus.from_manifest(status.to_manifest()) == status
        found = types(conditions)
        assert "Ready" in found
        assert not {"Reconciling", "Stalled"} <= set(found)
        assert all(one.status == "True" for one in conditions if one.type in {"Reconciling", "Stalled"})
        assert found == sorted(found, key=list(ConditionType).index)
        assert all(len(one.message) <= 1024 for one in conditions)


def test_every_reason_belongs_to_a_condition_and_has_the_form_of_one():
    assert set(REASONS_OF) == set(ConditionType)
    assert {reason for reasons in REASONS_OF.values() for reason in reasons} == set(Reason)
    for reason in Reason:
        assert Claim.true(T.READY, reason).reason == reason.value
        assert reason.value[0].isupper()
        assert reason.value.isalnum()
