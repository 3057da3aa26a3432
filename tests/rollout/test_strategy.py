"""A change that is allowed ends, and one that is refused would not: checked against every order of events."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from slotune.rollout.facts import Capacity, Serving, Strategy
from slotune.rollout.strategy import (
    ONE_AT_A_TIME,
    SURGE,
    Choice,
    Refusal,
    choose_strategy,
    completes,
    takes_down,
    way_back,
)
from tests.rollout.deployment_model import endings, start
from tests.rollout.objects import deployment

STATED: list[dict[str, Any]] = [
    {},
    {"type": "Recreate"},
    *(
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
        for surge, unavailable in itertools.product((0, 1, 2, "25%", "100%"), (0, 1, "25%", "100%"))
    ),
]
SIZES = list(itertools.product((1, 2, 3), (1, 2, 3), (0, 1, 2, 3), (True, False)))


def serving(replicas: int, stated: dict[str, Any] | None = None) -> Serving:
    return Serving.from_deployment(deployment(replicas=replicas, strategy=stated or {}), "llama")


@pytest.mark.parametrize("stated", STATED, ids=str)
def test_what_is_computed_is_what_kubernetes_does(stated: dict[str, Any]) -> None:
    for before, after, free, same in SIZES:
        strategy = Strategy.from_stated(stated, after)
        final, least = endings(start(before, after, strategy, free, same_gpu=same))
        case = (before, after, free, same, strategy)
        assert completes(strategy, before, after, Capacity(free, released=same)) == all(it.is_done for it in final), (
            case
        )
        if completes(strategy, before, after, Capacity(free, released=same)):
            assert takes_down(strategy, before, after) == (least == 0), case


@pytest.mark.parametrize("allow_downtime", [False, True], ids=["downtime is forbidden", "downtime is allowed"])
@pytest.mark.parametrize("owned", [True, False], ids=["owned", "targetRef"])
def test_an_allowed_change_ends_and_a_refused_one_would_wait_for_ever(owned: bool, allow_downtime: bool) -> None:
    for stated in [{}] if owned else STATED:
        for before, after, free, same in SIZES:
            found = choose_strategy(
                serving(before, stated),
                after,
                Capacity(free, released=same),
                owned=owned,
                allow_downtime=allow_downtime,
            )
            case = (stated, before, after, free, same, found)
            if isinstance(found, Choice):
                strategy = found.strategy or Strategy.from_stated(stated, found.replicas)
                final, least = endings(start(before, found.replicas, strategy, free, same_gpu=same))
                assert all(it.is_done for it in final), case
                assert found.downtime == (least == 0), case
                assert allow_downtime or least > 0, case
                continue
            for number in {max(before, after), after}:
                for strategy in (SURGE, ONE_AT_A_TIME) if owned else (Strategy.from_stated(stated, number),):
                    final, least = endings(start(before, number, strategy, free, same_gpu=same))
                    waits_for_ever = not all(it.is_done for it in final)
                    assert waits_for_ever or (least == 0 and not allow_downtime), case
                    assert waits_for_ever or owned or found.reason == "NeedsDowntime", case


def test_a_spare_gpu_is_used_for_a_surge() -> None:
    found = choose_strategy(serving(1), 1, Capacity(1), owned=True, allow_downtime=False)
    assert found == Choice(SURGE, 1, False, "A new pod answers before an old one ends")


def test_one_gpu_needs_a_permission() -> None:
    refused = choose_strategy(serving(1), 1, Capacity(0), owned=True, allow_downtime=False)
    assert isinstance(refused, Refusal)
    assert refused.reason == "WouldDeadlock"
    assert "rollout.allowDowntime: true" in refused.message

    allowed = choose_strategy(serving(1), 1, Capacity(0), owned=True, allow_downtime=True)
    assert isinstance(allowed, Choice)
    assert (allowed.strategy, allowed.downtime) == (ONE_AT_A_TIME, True)


def test_downtime_is_not_used_up_where_a_surge_would_do() -> None:
    found = choose_strategy(serving(1), 1, Capacity(1), owned=True, allow_downtime=True)
    assert isinstance(found, Choice)
    assert not found.downtime


def test_unknown_capacity_counts_as_none() -> None:
    found = choose_strategy(serving(1), 1, Capacity(None), owned=True, allow_downtime=False)
    assert isinstance(found, Refusal)
    assert "nobody knows whether a GPU is free" in found.message


def test_several_replicas_are_replaced_one_at_a_time() -> None:
    found = choose_strategy(serving(3), 3, Capacity(0), owned=True, allow_downtime=False)
    assert isinstance(found, Choice)
    assert (found.strategy, found.replicas) == (ONE_AT_A_TIME, 3)
    assert "1 pod fewer answers" in found.message


def test_fewer_replicas_come_after_the_new_pods_answer() -> None:
    found = choose_strategy(serving(4), 2, Capacity(0), owned=True, allow_downtime=False)
    assert isinstance(found, Choice)
    assert found.replicas == 4


def test_a_deployment_that_is_not_ours_keeps_its_strategy_or_is_refused() -> None:
    found = choose_strategy(serving(1), 1, Capacity(0), owned=False, allow_downtime=True)
    assert isinstance(found, Refusal)
    assert found.reason == "WouldDeadlock"
    assert "Set maxSurge: 0 and maxUnavailable: 1" in found.message

    own = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    choice = choose_strategy(serving(1, own), 1, Capacity(0), owned=False, allow_downtime=True)
    assert isinstance(choice, Choice)
    assert choice.strategy is None


def test_a_deployment_that_stops_every_pod_needs_a_permission() -> None:
    found = choose_strategy(serving(2, {"type": "Recreate"}), 2, Capacity(2), owned=False, allow_downtime=False)
    assert isinstance(found, Refusal)
    assert found.reason == "NeedsDowntime"


def test_pods_of_another_class_give_no_gpu_back() -> None:
    found = choose_strategy(serving(3), 2, Capacity(1, released=False), owned=True, allow_downtime=True)
    assert isinstance(found, Refusal)
    assert "Free 1 more" in found.message


def test_an_unready_candidate_can_be_taken_back_on_the_same_gpus() -> None:
    """The way back never waits for the GPU that the failed candidate holds."""
    for before, free in itertools.product((1, 2, 3), (0, 1, 2)):
        strategy = way_back(before, before, Capacity(free))
        for forward in (SURGE, ONE_AT_A_TIME):
            stuck, _ = endings(start(before, before, forward, free, healthy=False))
            for state in stuck:
                back = type(state)(before, before, strategy, state.sets, "old", state.free)
                assert all(it.is_done for it in endings(back)[0]), (before, free, forward)
