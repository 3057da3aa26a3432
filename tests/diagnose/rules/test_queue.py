"""Who waits for a slot, and why: from two looks at a running server, its log and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.finding import Clear, Confidence, Finding, Severity
from slotune.diagnose.rules.load import RULES as LOAD_RULES
from slotune.diagnose.rules.queue import RULES
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Line, RequestTimings, Turns
from slotune.verdict.promise import Promise
from tests.diagnose.rules.building import (
    NOTHING,
    SLOWEST,
    ask,
    found,
    is_clear,
    is_undecided,
    log,
    metrics,
    of,
    pod,
    probe,
    queueing,
    server,
    slot,
    timings,
)

SPEED: dict[str, Any] = {"tokens_predicted_total": 1000.0, "tokens_predicted_seconds_total": 25.0}
"""40 tokens/s of a request."""


def test_requests_that_wait_for_busy_slots_find_too_few_slots() -> None:
    said = found(RULES, "SLT050", of(server=queueing(3, 3, busy=1, slots=1)))
    assert "3 requests wait for 1 slot, all busy" in said.sentence
    assert said.confidence is Confidence.POSSIBLE, "nobody said what speed is owed"
    assert said.first is not None
    assert "from 1 to 4" in said.first
    assert any("requests_deferred 3, 3" in str(one) for one in said.evidence)


def test_more_slots_are_told_as_flags_to_type_with_what_they_take() -> None:
    held = log(facts={"slots": 1, "kv_unified": False, "context_per_slot": 4096, "kv_buffers": {"CUDA0": 90 * 2**20}})
    said = found(RULES, "SLT050", of(server=queueing(7, 7, busy=1, slots=1, **SPEED), log=held))
    assert said.first is not None
    assert "(--parallel 8 --ctx-size 32768): each slot keeps 4096 tokens" in said.first
    assert "KV memory grows 8 times, from 90 to about 720 MiB" in said.first
    assert "at most the 40 tok/s of now" in said.first


def test_more_slots_that_share_a_cache_ask_for_sharing_it() -> None:
    said = found(RULES, "SLT050", of(server=queueing(4, 4, busy=4), log=log()))
    assert said.first is not None
    assert "(--parallel 8 --ctx-size 8192 --kv-unified)" in said.first
    assert "MiB" not in said.first
    assert "tok/s" not in said.first


def test_a_context_of_which_nobody_says_whether_it_is_shared_gets_no_number() -> None:
    said = found(RULES, "SLT050", of(server=queueing(4, 4, busy=4)))
    assert said.first is not None
    assert "--parallel from 4 to 8, and --ctx-size 2 times as high" in said.first


def test_nobody_calls_speed_to_spare_what_cant_be_told() -> None:
    said = found(RULES, "SLT050", of(server=queueing(3, 3, busy=1, slots=1)))
    assert "can't be told" in said.sentence
    assert "has speed to spare" not in said.entry.cause


def test_the_share_of_the_wait_is_counted_where_the_server_counts_what_prompts_take() -> None:
    busy = queueing(4, 4, busy=4, prompt_seconds_total=10, tokens_predicted_seconds_total=90)
    # One request waits per slot: it waits a whole request's time, a tenth of which is reading.
    assert found(RULES, "SLT050", of(server=busy)).cost.ttft_share == pytest.approx(1 / 1.1)


@pytest.mark.parametrize(
    ("owed", "slots_help"),
    [(None, True), (20.0, True), (39.0, False), (100.0, False)],
    ids=["none is owed", "half is owed", "almost all is owed", "more is owed"],
)
def test_speed_says_whether_more_slots_or_more_servers_help(owed: float | None, slots_help: bool) -> None:
    symptoms = of(server=queueing(4, 5, busy=4, **SPEED), promise=Promise(1.0, owed))
    few, full = ask(RULES, "SLT050", symptoms), ask(LOAD_RULES, "SLT100", symptoms)
    assert isinstance(few, Finding) is slots_help
    assert isinstance(full, Finding) is not slots_help
    assert isinstance(full if slots_help else few, Clear)


def test_without_anything_owed_nobody_calls_a_server_saturated() -> None:
    assert is_undecided(LOAD_RULES, "SLT100", of(server=queueing(4, 4, busy=4, **SPEED)))


def test_users_who_hardly_feel_each_other_leave_room_for_more() -> None:
    symptoms = of(server=queueing(4, 4, busy=4, **SPEED), probe=probe(decode_step_s=1 / 45))
    assert found(RULES, "SLT050", symptoms).confidence is Confidence.LIKELY
    assert is_clear(LOAD_RULES, "SLT100", symptoms)


def test_one_of_many_that_waits_for_a_moment_is_no_alarm() -> None:
    found(RULES, "SLT050", of(server=queueing(1, 1, busy=4)), Severity.INFO)
    assert is_undecided(RULES, "SLT050", of(server=queueing(2, 0, busy=4)))


def watched(deferred: tuple[int, ...], processing: tuple[int, ...]) -> Symptoms:
    return of(server=replace(queueing(deferred[0], deferred[-1], busy=4), deferred=deferred, processing=processing))


def test_a_queue_that_is_gone_at_once_is_told_from_one_that_stays_by_watching() -> None:
    moment = watched((2, 0, 0, 0, 1, 0, 0), (4, 3, 4, 2, 4, 4, 3))
    assert is_clear(RULES, "SLT050", moment)
    assert is_clear(RULES, "SLT051", moment)
    assert is_clear(LOAD_RULES, "SLT100", moment)
    waves = watched((9, 0, 8, 0, 9, 7, 9), (4, 2, 4, 3, 4, 3, 4))
    found(RULES, "SLT050", waves)
    assert is_clear(RULES, "SLT051", waves), "in one of seven looks a slot was changing hands"
    idle = watched((3, 3, 4, 3, 3), (1, 1, 1, 2, 1))
    assert found(RULES, "SLT051", idle).confidence is Confidence.LIKELY


def test_a_busy_server_where_nobody_waits_is_clear() -> None:
    symptoms = of(server=queueing(0, 0, busy=3))
    assert is_clear(RULES, "SLT050", symptoms)
    assert is_clear(RULES, "SLT051", symptoms)
    assert is_clear(LOAD_RULES, "SLT100", symptoms)


@pytest.mark.parametrize("symptoms", [NOTHING, of(server=queueing(0, 0, busy=0)), of(server=server())])
def test_who_waits_is_undecided_while_nobody_comes_or_nobody_counts(symptoms: Symptoms) -> None:
    assert is_undecided(RULES, "SLT050", symptoms)
    assert is_undecided(RULES, "SLT051", symptoms)


def test_a_log_shows_that_a_slot_was_always_free() -> None:
    assert is_clear(RULES, "SLT050", of(log=log(requests=timings(most_busy_slots=3))))


def test_a_log_of_slots_that_are_always_busy_is_worth_a_word_and_no_more() -> None:
    full = log(requests=timings(40, most_busy_slots=4), seconds=32.0)
    said = found(RULES, "SLT050", of(log=full), Severity.INFO)
    assert said.confidence is Confidence.POSSIBLE
    now_and_then = log(requests=timings(40, most_busy_slots=4), seconds=600.0)
    assert is_undecided(RULES, "SLT050", of(log=now_and_then))


def test_requests_that_wait_beside_idle_slots_are_let_in_one_by_one() -> None:
    symptoms = of(server=queueing(3, 4, busy=1))
    said = found(RULES, "SLT051", symptoms)
    assert "4 requests wait though only 1 of 4 slots are busy" in said.sentence
    assert is_clear(RULES, "SLT050", symptoms)
    assert is_undecided(RULES, "SLT051", of(server=queueing(1, busy=3))), "a slot may just have become free"
    assert is_clear(RULES, "SLT051", of(server=queueing(3, 3, busy=4)))


def test_a_later_prompt_in_a_lower_slot_that_is_read_first_is_unfair() -> None:
    looks = (
        slot(0, task=9, prompt_tokens_processed=2048, decoded=0),
        slot(2, task=5, prompt_tokens_processed=0, decoded=0),
    )
    said = found(RULES, "SLT052", of(server=server(slots=looks)), Severity.INFO)
    assert "slot 0 has read 2,048 tokens" in said.sentence
    assert said.confidence is Confidence.POSSIBLE, "one moment says little"


@pytest.mark.parametrize(
    "low",
    [
        slot(0, task=4, prompt_tokens_processed=2048, decoded=0),
        slot(0, task=9, prompt_tokens_processed=0, decoded=0),
    ],
    ids=["it came first", "it is not read either"],
)
def test_prompts_in_the_order_of_their_arrival_are_fair(low: object) -> None:
    high = slot(1, task=5, prompt_tokens_processed=0, decoded=0)
    assert is_clear(RULES, "SLT052", of(server=server(slots=(low, high))))


def test_fairness_needs_two_prompts_that_are_read_at_once() -> None:
    answers = (slot(0, task=9, decoded=12, prompt_tokens_processed=40), slot(1, processing=False))
    assert is_undecided(RULES, "SLT052", of(server=server(slots=answers)))
    assert is_undecided(RULES, "SLT052", NOTHING)
    assert is_clear(RULES, "SLT052", of(server=server(slots=(slot(0),))))


def scattered(busy: float, facts: Mapping[str, object] | None = None, **more: Any) -> Symptoms:
    counters = {"n_busy_slots_per_decode": busy, "n_decode_total": 1000.0, **SPEED}
    own = log(facts={"slots": 16, "kv_unified": False, **(facts or {})})
    return of(log=own, server=server(16, metrics=metrics(**counters)), **more)


def test_few_busy_slots_among_many_with_caches_of_their_own_are_scattered() -> None:
    said = found(RULES, "SLT053", scattered(4.0), Severity.INFO)
    assert "about 3.2 times a step" in said.sentence or "about 3.3 times a step" in said.sentence
    assert said.cost.speed_share is None, "a CPU is slower with every request, however they lie"
    assert said.first is not None
    assert "from 16 to about 4" in said.first


def test_scattered_slots_are_an_alarm_once_users_are_slower_than_owed_or_a_gpu_is_slow() -> None:
    found(RULES, "SLT053", scattered(4.0, promise=Promise(1.0, 60.0)))
    on_gpu = {"model_buffers": {"CUDA0": 4 * 10**9}}
    alone = probe(decode_step_s=1 / 160)
    on_it = found(RULES, "SLT053", scattered(4.0, probe=alone, facts=on_gpu))
    assert on_it.cost.speed_share == pytest.approx(1 - 16 / 52)
    assert on_it.confidence is Confidence.LIKELY
    found(RULES, "SLT053", scattered(4.0, probe=alone), Severity.INFO)  # a CPU slows down anyway


def test_runs_of_neighbours_are_counted_where_slots_show_them() -> None:
    def looked(*ids: int) -> Symptoms:
        one = scattered(4.0)
        assert one.server is not None
        slots = tuple(slot(number, number in ids) for number in range(16))
        return of(log=one.log, server=server(16, metrics=one.server.metrics, slots=slots))

    assert "about 4.0 times" in found(RULES, "SLT053", looked(0, 5, 10, 15), Severity.INFO).sentence
    assert is_clear(RULES, "SLT053", looked(0, 1, 2, 3))


@pytest.mark.parametrize("busy", [1.0, 14.0], ids=["one at a time", "almost all"])
def test_one_request_or_a_full_server_is_not_scattered(busy: float) -> None:
    assert is_clear(RULES, "SLT053", scattered(busy))


def test_slots_that_share_a_cache_or_are_two_are_not_scattered() -> None:
    assert is_clear(RULES, "SLT053", of(log=log(facts={"slots": 16, "kv_unified": True})))
    assert is_clear(RULES, "SLT053", of(server=server(2)))
    assert is_clear(RULES, "SLT053", of(pod=pod("-np", "16", "-kvu")))


def test_scattering_needs_to_know_the_caches_and_the_busy_slots() -> None:
    assert is_undecided(RULES, "SLT053", of(server=server(16)))
    assert is_undecided(RULES, "SLT053", of(log=log(facts={"slots": 16, "kv_unified": False})))
    assert is_undecided(RULES, "SLT053", of(pod=pod("-np", "16")))


def test_what_happened_between_two_looks_counts_more_than_the_time_before() -> None:
    before = metrics(n_busy_slots_per_decode=1.0, n_decode_total=1000)
    later = metrics(n_busy_slots_per_decode=1.3, n_decode_total=1100)  # (1430 - 1000) / 100 steps
    one = of(log=log(facts={"slots": 16, "kv_unified": False}), server=server(16, metrics=before, metrics_later=later))
    assert found(RULES, "SLT053", one, Severity.INFO).sentence.startswith("4.3 of 16 slots busy")


def test_static_batching_is_found_where_requests_meet() -> None:
    told = found(RULES, "SLT057", of(pod=pod("-nocb"), log=log(requests=timings(most_busy_slots=3))))
    assert any("-nocb" in str(one) for one in told.evidence)
    found(RULES, "SLT057", of(pod=pod(env={"LLAMA_ARG_NO_CONT_BATCHING": "1"}), server=queueing(2, 2, busy=4)))
    found(RULES, "SLT057", of(pod=pod("-nocb")), Severity.INFO)


def test_static_batching_is_clear_by_default_and_harmless_to_one_slot() -> None:
    assert is_clear(RULES, "SLT057", of(pod=pod()))
    assert is_clear(RULES, "SLT057", of(pod=pod("-cb", "-np", "8")))
    assert is_clear(RULES, "SLT057", of(pod=pod("-nocb", "-np", "1")))


def test_static_batching_is_undecided_without_the_arguments() -> None:
    assert is_undecided(RULES, "SLT057", of(log=log(requests=timings()), server=server()))
    hidden = log(facts={"config_files": ("/etc/llama.cpp/config.ini",)})
    assert is_undecided(RULES, "SLT057", of(pod=pod(), log=hidden))


@pytest.mark.parametrize(
    ("requests", "clear"),
    [
        (timings(40, most_busy_slots=1), True),
        (timings(40, most_busy_slots=4, example=Line(9, SLOWEST.format(ms=1200, tokens=500))), True),
        (timings(40, most_busy_slots=4, example=Line(9, SLOWEST.format(ms=9000, tokens=6000))), False),
    ],
    ids=["one at a time", "all in one step", "one that fills steps"],
)
def test_a_log_tells_that_no_prompt_fills_a_step(requests: RequestTimings, clear: bool) -> None:
    symptoms = of(log=log(requests=requests, facts={"batch_size": 2048}))
    assert is_clear(RULES, "SLT052", symptoms) == clear
    assert is_undecided(RULES, "SLT052", symptoms) != clear


LATE = Line(40, "slot launch_slot_: id  0 | task 3 | processing task")
BEFORE = Line(12, "slot launch_slot_: id  0 | task 8 | processing task")


def out_of_turn(build: int | None, turns: Turns) -> Symptoms:
    return of(log=log(requests=timings(turns=turns), build=build))


def test_a_build_that_lets_newcomers_in_first_is_to_be_replaced() -> None:
    starved = Turns(900, overtaken=3, most=41, waited_s=75.25, late=LATE, before=BEFORE)
    said = found(RULES, "SLT059", out_of_turn(6056, starved))
    assert "3 of 900 requests saw their slot given to later ones" in said.sentence
    assert "after 41 that came later, and waited 75.2 s longer than one of them" in said.sentence
    assert [one.line for one in said.evidence[:2]] == [12, 40]
    assert said.confidence is Confidence.LIKELY


@pytest.mark.parametrize("build", [None, 11549], ids=["unknown", "one that keeps the order"])
def test_who_overtakes_on_another_build_is_not_known(build: int | None) -> None:
    starved = Turns(900, overtaken=3, most=41, late=LATE, before=BEFORE)
    said = found(RULES, "SLT059", out_of_turn(build, starved), Severity.INFO)
    assert said.confidence is Confidence.POSSIBLE


def test_requests_in_their_order_are_in_turn_and_without_numbers_nothing_is_told() -> None:
    assert is_clear(RULES, "SLT059", out_of_turn(None, Turns(900)))
    assert is_undecided(RULES, "SLT059", of(log=log(requests=timings())))
    assert is_undecided(RULES, "SLT059", NOTHING)


def test_a_log_tells_that_a_prompt_in_a_low_slot_was_read_before_an_earlier_one() -> None:
    passed = Turns(9, begun=9, behind=2, passed=1, passed_line=LATE, passing_line=BEFORE)
    said = found(RULES, "SLT052", of(log=log(requests=timings(turns=passed))), Severity.INFO)
    assert "1 of 9 prompts had a slot and were not begun" in said.sentence
    assert said.confidence is Confidence.LIKELY


def test_a_log_rules_it_out_only_where_no_prompt_was_begun_before_an_earlier_one() -> None:
    assert is_clear(RULES, "SLT052", of(log=log(requests=timings(turns=Turns(9, begun=9)))))
    assert is_undecided(RULES, "SLT052", of(log=log(requests=timings(turns=Turns(9, begun=9, behind=2)))))
    assert is_undecided(RULES, "SLT052", of(log=log(requests=timings(turns=Turns(9)))))
