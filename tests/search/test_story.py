"""What each change bought is measured, in the order queue, cache, bytes, and told in money."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.search.decision import monthly_cost
from slotune.search.problem import Budget, Hardware
from slotune.search.story import GROUPS
from slotune.search.trial import Purpose
from tests.search.worlds import World, candidate, live, problem

BASELINE = candidate("F16", slots=8)
QUEUE = candidate("F16", slots=16)
CACHE = candidate("F16", slots=16, cache_ram_mib=4096, cache_idle_slots=True)
WINNER = candidate("Q4_0", slots=16, cache_ram_mib=4096, cache_idle_slots=True)
CAPACITY = {BASELINE: 1.0, QUEUE: 1.5, CACHE: 3.0, WINNER: 6.0}


def test_every_setting_of_a_candidate_belongs_to_exactly_one_group():
    grouped = [name for _, names in GROUPS for name in names]
    assert sorted(grouped) == sorted(f.name for f in fields(Candidate))


def test_five_four_two_one_is_told_with_the_money_of_each_step():
    decision, _ = live(problem([BASELINE, WINNER], replicas_today=5, explain=True), World(CAPACITY))
    assert [(s.name, s.replicas, s.kept) for s in decision.steps] == [
        ("baseline", 5, False),
        ("queue", 4, True),
        ("cache", 2, True),
        ("bytes", 1, True),
    ]
    assert [s.monthly_cost for s in decision.steps] == [monthly_cost(n, Decimal("0.80")) for n in (5, 4, 2, 1)]
    assert decision.steps[0].result is not None
    assert not decision.steps[0].result.passed


def test_steps_that_change_nothing_are_left_out():
    winner = candidate("Q4_0", slots=8)
    decision, _ = live(problem([BASELINE, winner], explain=True), World({BASELINE: 1.0, winner: 6.0}))
    assert [s.name for s in decision.steps] == ["baseline", "bytes"]


def test_a_step_that_does_not_fit_without_the_later_ones_is_said_not_started():
    needs = {BASELINE: 10, QUEUE: 100, CACHE: 100, WINNER: 30}
    decision, results = live(
        problem(
            [BASELINE, WINNER],
            replicas_today=5,
            explain=True,
            memory_bytes=needs,
            hardware={"l4": Hardware("l4", Decimal("0.80"), memory_bytes=50)},
        ),
        World(CAPACITY),
    )
    assert QUEUE not in {r.trial.candidate for r in results}
    queue = decision.steps[1]
    assert (queue.name, queue.replicas, queue.kept) == ("queue", None, False)
    assert "does not fit" in queue.note


def test_the_story_can_be_switched_off():
    _, results = live(problem([BASELINE, WINNER], replicas_today=5, explain=False), World(CAPACITY))
    assert all(r.trial.purpose is not Purpose.EXPLAIN for r in results)


def test_a_budget_that_ends_in_the_story_shortens_the_story_not_the_answer():
    decision, _ = live(
        problem([BASELINE, WINNER], replicas_today=5, explain=True, budget=Budget(gpu_seconds=1e9, trials=4)),
        World(CAPACITY),
    )
    assert decision.kind == "Found"
    assert decision.choice is not None
    assert decision.choice.candidate == WINNER
    assert [s.note for s in decision.steps if not s.kept][1:] == ["not measured"] * 2


def test_saying_aloud_what_the_server_chose_anyway_is_no_step():
    today = candidate("F16", slots=8, flash_attention="auto", gpu_layers="auto")
    winner = candidate("Q4_0", slots=8, cache_ram_mib=4096)
    decision, _ = live(problem([today, winner], explain=True), World({today: 1.0, winner: 6.0}))
    assert [s.name for s in decision.steps] == ["baseline", "cache", "bytes"]


def test_over_provisioning_is_its_own_step_and_no_change_of_settings_takes_credit_for_it():
    today, winner = candidate("F16", slots=8), candidate("F16", slots=16)
    decision, _ = live(problem([today, winner], replicas_today=5, explain=True), World({today: 2.0, winner: 6.0}))
    assert [(s.name, s.replicas) for s in decision.steps] == [("baseline", 5), ("replicas", 3), ("queue", 1)]


def test_what_runs_today_on_fewer_machines_is_told_as_such():
    today = candidate("F16", slots=8)
    decision, _ = live(problem([today], replicas_today=5, explain=True), World({today: 2.0}))
    assert [(s.name, s.replicas) for s in decision.steps] == [("baseline", 5), ("replicas", 3)]


def test_the_last_step_is_named_by_what_tells_not_by_what_was_only_said_aloud():
    today = candidate("F16", slots=8, flash_attention="auto", gpu_layers="auto")
    winner = candidate("F16", slots=8, cache_ram_mib=4096)
    decision, _ = live(problem([today, winner], explain=True), World({today: 1.0, winner: 6.0}))
    assert [s.name for s in decision.steps] == ["baseline", "cache"]
