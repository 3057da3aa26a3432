"""Which of equals is asked first: what was found of a trial, moved the right way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest

from slotune.diagnose.hints import hints
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.cache_facts import CacheFacts
from slotune.search.problem import Hardware, Problem
from slotune.search.trial import Purpose
from slotune.verdict.verdicts import Outcome
from tests.diagnose.test_findings import PROMISE, QUEUE, SHARED, UNIQUE, parts, result
from tests.simulator import model_8b


def with_slots(slots: int, **settings: object) -> Candidate:
    return Candidate("BF16", "gpu", slots, 8192, **settings)  # type: ignore[arg-type]  # a test's shorthand


def searched(*candidates: Candidate, shared: bool = False) -> Problem:
    return Problem(
        "any",
        PROMISE,
        SHARED if shared else UNIQUE,
        {"gpu": Hardware("gpu", Decimal(1))},
        {name: model_8b(name) for name in ("BF16", "Q8_0")},
        candidates,
        candidates[0],
    )


def first_of(order: Mapping[Candidate, int]) -> list[Candidate]:
    """Candidates by their place."""
    return sorted(order, key=lambda candidate: order[candidate])


def test_nothing_is_preferred_before_anything_missed() -> None:
    asked = searched(with_slots(8), with_slots(16))
    assert hints(asked, []) == {}
    assert hints(asked, [result(parts(0.1, 0.4), p95=0.6, outcome=Outcome.PASS)]) == {}


def test_where_requests_stood_in_a_queue_more_slots_come_first_and_fewer_last() -> None:
    tried, more, fewer, other = with_slots(8), with_slots(16), with_slots(4), with_slots(8, batch_size=512)
    order = first_of(hints(searched(tried, fewer, other, more), [result(QUEUE)]))
    assert order[0] == more
    assert order[-1] == fewer


def test_where_prompts_wait_for_each_other_fewer_slots_come_first_and_more_last() -> None:
    tried, more, fewer = with_slots(8), with_slots(16), with_slots(4)
    order = first_of(hints(searched(tried, more, fewer), [result(parts(0.3, 0.4, 0.6), p95=1.3)]))
    assert order == [fewer, tried, more]


def test_the_first_setting_of_a_cause_comes_before_its_others() -> None:
    tried, ubatch, fewer = with_slots(8), with_slots(8, ubatch_size=1024), with_slots(4)
    order = first_of(hints(searched(tried, fewer, ubatch), [result(parts(0.3, 0.4, 0.6), p95=1.3)]))
    assert order == [ubatch, fewer, tried]


def test_what_was_noticed_beside_the_first_cause_counts_after_it() -> None:
    tried, cached, fewer = with_slots(8), with_slots(8, cache_ram_mib=4096), with_slots(4)
    late = replace(
        result(QUEUE),
        cache=CacheFacts(theoretical_reuse=0.6, measured_reuse=0.2, slots_reuse=0.25, prefixes=20, prefix_share=0.7),
    )
    order = first_of(hints(searched(tried, fewer, cached, shared=True), [late]))
    assert order == [cached, tried, fewer]


def test_of_those_that_were_asked_themselves_the_narrowest_miss_comes_first() -> None:
    wide, narrow = result(QUEUE, slots=8), result(QUEUE, slots=16)
    narrow = replace(narrow, verdict=replace(narrow.verdict, violations=12))
    order = hints(searched(with_slots(8), with_slots(16)), [wide, narrow])
    assert order[with_slots(16)] < order[with_slots(8)]


def test_a_candidate_is_held_against_the_trial_that_it_is_most_like() -> None:
    slow = result(parts(0.3, 0.4, 0.6), p95=1.3, slots=32)
    queued = result(QUEUE, slots=2)
    order = hints(searched(with_slots(2), with_slots(32), with_slots(4), with_slots(16)), [slow, queued])
    assert order[with_slots(4)] <= order[with_slots(2)]
    assert order[with_slots(16)] <= order[with_slots(32)]


def test_what_ran_out_of_memory_is_followed_by_what_needs_less() -> None:
    crashed = result(failure=FailureClass.OUT_OF_MEMORY_KV)
    tried, shorter, longer = with_slots(8), replace(with_slots(8), context_per_slot=4096), with_slots(8, batch_size=512)
    longer = replace(longer, context_per_slot=16384)
    order = first_of(hints(searched(tried, longer, shorter), [crashed]))
    assert order[0] == shorter
    assert order[-1] == longer


@pytest.mark.parametrize("purpose", [Purpose.SENTINEL, Purpose.FINALIST, Purpose.PARTIAL, Purpose.QUALITY])
def test_only_trials_that_put_the_promise_to_the_question_say_anything(purpose: Purpose) -> None:
    missed = result(QUEUE)
    beside = replace(missed, trial=replace(missed.trial, purpose=purpose))
    assert hints(searched(with_slots(8), with_slots(16)), [beside]) == {}


def test_a_measurement_at_fault_says_nothing() -> None:
    assert hints(searched(with_slots(8), with_slots(16)), [result(QUEUE, outcome=Outcome.INVALID)]) == {}


def test_asked_twice_it_says_the_same() -> None:
    asked = searched(*(with_slots(slots) for slots in (8, 1, 2, 4, 16, 32)))
    measured = [result(QUEUE, slots=8), result(parts(0.3, 0.4, 0.6), p95=1.3, slots=32)]
    assert hints(asked, measured) == hints(asked, measured)
