"""Who waits for a condition is never told about a spec of before: each condition says which generation it speaks of.

``kubectl wait`` leaves a condition out whose ``observedGeneration`` is older than the object. Where a condition has
none, it takes that of the status, and would then believe what was found for another spec.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.controller.cluster import ForbiddenError
from slotune.controller.conditions import Claim, with_claims
from slotune.controller.kinds import GPU_CLASS, LLAMA_DEPLOYMENT, LLAMA_TRIAL
from slotune.controller.reasons import ConditionType, Reason
from tests.controller.fake_cluster import Request
from tests.controller.manifests import NAMESPACE, target, targeting
from tests.controller.simulation import Simulation, assert_good_statuses
from tests.controller.test_plan_laws import decided, patch

FOR_PEOPLE = {"Ready", "Reconciling", "Stalled"}
"""What a tool looks at that knows no kind by name: these speak of every spec at once."""


def waits_no_longer(manifest: Any, kind: str, status: str = "True") -> bool:
    """``kubectl wait --for=condition=KIND=STATUS``, as ConditionalWait of kubectl decides it."""
    told = manifest.get("status") or {}
    for one in told.get("conditions", ()):
        if one["type"] == kind:
            observed = one.get("observedGeneration", told.get("observedGeneration"))
            seen = observed is None or observed >= manifest["metadata"]["generation"]
            return seen and one["status"] == status
    return False


def found(simulation: Simulation, name: str = "chat") -> Any:
    return simulation.cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, name)


async def test_what_was_found_for_the_spec_of_before_is_nothing_to_go_by() -> None:
    simulation = await decided(target(), targeting())
    assert waits_no_longer(found(simulation), "SearchCompleted")
    patch(simulation, slo={"ttftP95": "2s"})
    assert not waits_no_longer(found(simulation), "SearchCompleted")
    assert not waits_no_longer(found(simulation), "Ready")


@pytest.mark.parametrize(
    ("change", "kind", "status"),
    [
        pytest.param({"suspend": True}, "Ready", "False", id="suspended"),
        pytest.param({"container": "nowhere"}, "Stalled", "True", id="refused"),
        pytest.param({"targetRef": {"name": "nowhere"}}, "Stalled", "True", id="a target that is not there"),
        pytest.param({"targetRef": {"name": "nowhere"}}, "TargetResolved", "False", id="and what it means for that"),
        pytest.param({"slo": {"ttftP95": "2s"}}, "Reconciling", "True", id="another question"),
        pytest.param({"rollout": {"mode": "RequireApproval"}}, "SearchCompleted", "True", id="the same question"),
    ],
)
async def test_whoever_waits_for_a_change_to_be_seen_is_told(change: Any, kind: str, status: str) -> None:
    simulation = await decided(target(), targeting())
    patch(simulation, **change)
    assert not waits_no_longer(found(simulation), kind, status)
    await simulation.run(lambda: waits_no_longer(found(simulation), kind, status), most_s=60)
    assert waits_no_longer(found(simulation), kind, status)
    assert_each_says_its_generation(simulation)


async def test_the_younger_one_of_two_on_one_target_says_of_which_spec_it_speaks() -> None:
    simulation = await decided(target(), targeting())
    simulation.now += timedelta(hours=1)
    simulation.apply(targeting("late"))
    await simulation.run(lambda: simulation.says("Stalled", "late") == ("True", "TargetConflict"), most_s=60)
    patch(simulation, "late", slo={"ttftP95": "2s"})
    assert not waits_no_longer(found(simulation, "late"), "Stalled")
    await simulation.run(lambda: waits_no_longer(found(simulation, "late"), "Stalled"), most_s=60)
    assert waits_no_longer(found(simulation, "late"), "Stalled")
    assert_each_says_its_generation(simulation)


async def test_a_failure_that_nobody_planned_for_says_it_too() -> None:
    simulation = await decided(target(), targeting())

    def forbidden(request: Request) -> None:
        if (request.verb, request.kind) == ("create", LLAMA_TRIAL.name):
            raise ForbiddenError(str(request), 403, "llamatrials is forbidden")

    simulation.cluster.before = forbidden
    patch(simulation, slo={"ttftP95": "2s"})
    await simulation.run(lambda: waits_no_longer(found(simulation), "Stalled"), most_s=600)
    assert simulation.says("Stalled") == ("True", "Forbidden")
    assert_each_says_its_generation(simulation)


def assert_each_says_its_generation(simulation: Simulation) -> None:
    """Of every condition that was ever written, on every kind that has some."""
    assert_good_statuses(simulation)
    written = 0
    for change in simulation.cluster.changes:
        status = change.object.get("status") or {}
        if change.object["kind"] not in {LLAMA_DEPLOYMENT.name, LLAMA_TRIAL.name, GPU_CLASS.name} or not status:
            continue
        for one in status.get("conditions", ()):
            assert 1 <= one["observedGeneration"] <= change.object["metadata"]["generation"]
            if change.object["kind"] == LLAMA_DEPLOYMENT.name and one["type"] in FOR_PEOPLE:
                assert one["observedGeneration"] == status["observedGeneration"]
            written += 1
    assert written


NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
CLAIMS = st.lists(
    st.builds(Claim, st.sampled_from(ConditionType), st.sampled_from(["True", "False", "Unknown"]), st.just("Pending")),
    max_size=8,
)


@given(st.lists(CLAIMS, min_size=1, max_size=5))
def test_a_condition_is_of_the_last_generation_for_which_it_was_claimed(looks: list[list[Claim]]) -> None:
    conditions: tuple[Any, ...] = ()
    claimed = dict.fromkeys(ConditionType, 1)  # what was never claimed is Unknown from the first look on
    for generation, claims in enumerate(looks, start=1):
        claimed |= dict.fromkeys((claim.type for claim in claims), generation)
        conditions = with_claims(conditions, claims, generation=generation, now=NOON)
        assert {one.type: one.observed_generation for one in conditions} == {
            one.type: claimed[ConditionType(one.type)] for one in conditions
        }


def test_a_refusal_leaves_no_word_of_before_that_could_be_taken_for_one_about_this_spec() -> None:
    before = with_claims((), [Claim.true(ConditionType.SLO_MET, Reason.ROLLED_OUT)], generation=1, now=NOON)
    refused = [Claim.true(ConditionType.STALLED, Reason.INVALID_SPEC, "spec.container: no such one")]
    after = with_claims(before, refused, generation=2, now=NOON)
    manifest = {
        "metadata": {"generation": 2},
        "status": {
            "observedGeneration": 2,
            "conditions": [one.model_dump(by_alias=True, exclude_none=True) for one in after],
        },
    }
    assert waits_no_longer(manifest, "Stalled")
    assert not waits_no_longer(manifest, "SLOMet")
