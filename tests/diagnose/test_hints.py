"""Which of equals is asked first: what was found of a trial, moved the right way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from slotune.diagnose.hints import hints
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.cache_facts import CacheFacts
from slotune.search.best_first import next_step
from slotune.search.decision import Decision
from slotune.search.options import Preference, unhinted
from slotune.search.problem import Hardware, Problem
from slotune.search.trial import Purpose, TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome
from tests.diagnose.test_findings import PROMISE, QUEUE, SHARED, UNIQUE, parts, result
from tests.simulator import measure_noise_free, model_8b, space_384

CONTENTION = result(parts(0.3, 0.4, 0.6), p95=1.3)


def with_slots(slots: int, **settings: object) -> Candidate:
    return Candidate("BF16", "gpu", slots, 8192, **settings)  # type: ignore[arg-type]  # a test's shorthand


def searched(*candidates: Candidate, shared: bool = False) -> Problem:
    return Problem(
        "any",
        PROMISE,
        SHARED if shared else UNIQUE,
        {"gpu": Hardware("gpu", Decimal(1))},
        {name: model_8b(name) for name in ("BF16", "Q8_0")},
        (with_slots(8), *candidates),
        with_slots(8),
    )


def in_order(order: Mapping[Candidate, int], *candidates: Candidate) -> bool:
    """Whether each comes before the next, and not merely beside it."""
    return all(order.get(one, 0) < order.get(other, 0) for one, other in itertools.pairwise(candidates))


def test_nothing_is_preferred_before_anything_missed() -> None:
    asked = searched(with_slots(16))
    assert hints(asked, []) == {}
    assert hints(asked, [result(parts(0.1, 0.4), p95=0.6, outcome=Outcome.PASS)]) == {}


def test_where_requests_stood_in_a_queue_more_slots_come_first_and_fewer_last() -> None:
    more, alike, fewer = with_slots(16), with_slots(8, batch_size=512), with_slots(4)
    assert in_order(hints(searched(more, alike, fewer), [result(QUEUE)]), more, alike, fewer)


def test_where_prompts_wait_for_each_other_fewer_slots_come_first_and_more_last() -> None:
    fewer, alike, more = with_slots(4), with_slots(8, batch_size=512), with_slots(16)
    assert in_order(hints(searched(fewer, alike, more), [CONTENTION]), fewer, alike, more)


def test_the_first_setting_of_a_cause_comes_before_its_others() -> None:
    ubatch, fewer = with_slots(8, ubatch_size=1024), with_slots(4)
    assert in_order(hints(searched(ubatch, fewer), [CONTENTION]), ubatch, fewer)


def test_prompts_that_are_read_again_count_after_the_first_cause_and_other_things_beside_it_do_not() -> None:
    late = result(QUEUE, gap=0.5)
    late = replace(
        late,
        cache=CacheFacts(theoretical_reuse=0.6, measured_reuse=0.2, slots_reuse=0.25, prefixes=20, prefix_share=0.7),
    )
    more, kept, batch = with_slots(16), with_slots(8, cache_ram_mib=4096), with_slots(8, batch_size=512)
    order = hints(searched(more, kept, batch, shared=True), [late])
    assert in_order(order, more, kept, batch)


def test_a_candidate_is_held_against_the_trial_that_it_is_most_like() -> None:
    crowded = replace(CONTENTION, trial=replace(CONTENTION.trial, candidate=with_slots(32)))
    queued = result(QUEUE, slots=2)
    close_to_few, close_to_many = with_slots(2, batch_size=512), with_slots(32, batch_size=512)
    order = hints(searched(with_slots(4), with_slots(16), close_to_few, close_to_many), [crowded, queued])
    assert in_order(order, with_slots(4), close_to_few)
    assert in_order(order, with_slots(16), close_to_many)


def test_what_ran_out_of_memory_is_followed_by_what_needs_less() -> None:
    crashed = result(failure=FailureClass.OUT_OF_MEMORY_KV)
    shorter, alike = replace(with_slots(8), context_per_slot=4096), with_slots(8, batch_size=512)
    longer = replace(with_slots(8), context_per_slot=16384)
    assert in_order(hints(searched(shorter, alike, longer), [crashed]), shorter, alike, longer)


@pytest.mark.parametrize("came_up", [True, False])
def test_host_memory_that_ran_out_is_followed_by_less_of_what_fills_it(came_up: bool) -> None:
    kept = with_slots(8, cache_ram_mib=8192)
    killed = result(failure=FailureClass.OUT_OF_MEMORY_HOST)
    killed = replace(
        killed,
        trial=replace(killed.trial, candidate=kept),
        failure_knob="cacheRAMMiB",
        effective=(("--parallel", "8"),) if came_up else (),
    )
    uncached, shorter = replace(kept, cache_ram_mib=256), replace(kept, context_per_slot=4096)
    alike, longer = replace(kept, batch_size=512), replace(kept, context_per_slot=16384)
    order = hints(searched(kept, uncached, shorter, alike, longer), [killed])
    assert in_order(order, shorter, alike, longer)
    # Before it came up no prompt was kept: less room for them is as good as any other change.
    assert in_order(order, uncached, shorter) is came_up
    assert in_order(order, shorter, uncached) is not came_up


def test_a_prompt_cache_that_was_off_is_not_made_smaller_and_not_turned_on() -> None:
    killed = result(failure=FailureClass.OUT_OF_MEMORY_HOST)
    killed = replace(
        killed,
        trial=replace(killed.trial, candidate=with_slots(8, cache_ram_mib=0)),
        failure_knob="cacheRAMMiB",
        effective=(("--parallel", "8"),),
    )
    bare = killed.trial.candidate
    fewer, cached = replace(bare, parallel_slots=4), replace(bare, cache_ram_mib=8192)
    assert in_order(hints(searched(bare, fewer, cached), [killed]), fewer, cached)


def test_other_weights_and_kv_types_are_not_compared_since_their_order_is_not_ours_to_make() -> None:
    lossy = replace(with_slots(16), variant="Q8_0")
    assert lossy not in hints(searched(lossy, replace(lossy, parallel_slots=2)), [result(QUEUE)])


def test_no_finding_counts_of_a_rate_that_is_faster_than_what_is_asked_by_now() -> None:
    alike = with_slots(8, batch_size=512)
    fast = result(QUEUE)
    elsewhere = replace(with_slots(1), variant="Q8_0")
    slow = replace(result(QUEUE), trial=replace(fast.trial, candidate=elsewhere, rate=fast.trial.rate / 2))
    asked = searched(alike, elsewhere)
    assert alike in hints(asked, [fast])
    assert alike not in hints(asked, [fast, slow])


@pytest.mark.parametrize("purpose", [Purpose.SENTINEL, Purpose.FINALIST, Purpose.PARTIAL, Purpose.QUALITY])
def test_only_trials_that_put_the_promise_to_the_question_say_anything(purpose: Purpose) -> None:
    missed = result(QUEUE)
    beside = replace(missed, trial=replace(missed.trial, purpose=purpose))
    assert hints(searched(with_slots(16), with_slots(4)), [beside]) == {}


def test_a_measurement_at_fault_says_nothing() -> None:
    assert hints(searched(with_slots(4)), [result(QUEUE, outcome=Outcome.INVALID)]) == {}


def test_a_miss_without_a_known_cause_says_nothing() -> None:
    assert hints(searched(with_slots(4)), [result(parts(0.1, 0.4), p95=0.9)]) == {}


def held(slots: int, requests: int, *, rate: float = 3.0, violations: int = 10, **settings: object) -> TrialResult:
    """A miss without a known cause that was stopped after so many requests."""
    late = result(parts(0.1, 0.4), p95=0.9)
    verdict = replace(late.verdict, requests=requests, violations=violations)
    return replace(late, verdict=verdict, trial=replace(late.trial, candidate=with_slots(slots, **settings), rate=rate))


def test_who_held_out_longer_at_a_faster_rate_comes_first_at_the_next_slower_one() -> None:
    asked = searched(with_slots(16), with_slots(4))
    missed = [held(4, 120), held(16, 40), held(8, 80)]
    assert in_order(hints(asked, missed), with_slots(4), with_slots(8), with_slots(16))
    slower = [*missed, held(8, 200, rate=2.0)]
    assert in_order(hints(asked, slower), with_slots(8), with_slots(4), with_slots(16))


def test_how_long_a_trial_held_out_is_counted_in_requests_for_each_that_broke_the_promise() -> None:
    """Those with more runs may see more violations before they are stopped."""
    asked = searched(with_slots(16), with_slots(4))
    assert in_order(hints(asked, [held(16, 60, violations=20), held(4, 50)]), with_slots(4), with_slots(16))


def test_who_was_never_asked_goes_with_the_one_that_it_is_most_like() -> None:
    like_few, like_many = with_slots(4, batch_size=512), with_slots(16, batch_size=512)
    asked = searched(with_slots(16), with_slots(4), like_many, like_few)
    assert in_order(hints(asked, [held(4, 120), held(16, 40)]), like_few, like_many)


def test_what_was_found_goes_before_how_long_others_held_out() -> None:
    more, fewer = with_slots(16), with_slots(4)
    queued = replace(result(QUEUE), trial=replace(result(QUEUE).trial, rate=3.0))
    faster = [held(4, 120, rate=6.0), held(16, 40, rate=6.0)]
    assert in_order(hints(searched(more, fewer), [*faster, queued]), more, fewer)


def test_a_server_that_hung_held_out_for_nobody_knows_how_long() -> None:
    hung = replace(held(4, 120), failure=FailureClass.WEDGED)
    assert not in_order(
        hints(searched(with_slots(4), with_slots(16)), [held(16, 40), hung]), hung.trial.candidate, with_slots(16)
    )


def test_asked_twice_it_says_the_same() -> None:
    asked = searched(*(with_slots(slots) for slots in (1, 2, 4, 16, 32)))
    measured = [result(QUEUE, slots=8), replace(CONTENTION, trial=replace(CONTENTION.trial, candidate=with_slots(32)))]
    assert hints(asked, measured) == hints(asked, measured)


def lived(problem: Problem, prefer: Callable[[Problem, Sequence[TrialResult]], Preference]) -> tuple[Decision, int]:
    """The answer of a search in the simulator, and its trials."""
    results: list[TrialResult] = []
    while not isinstance(step := next_step(problem, results, preferred=prefer(problem, results)), Decision):
        results.append(measure_noise_free(step, problem, requests=300))
    return step, len(results)


def conversations(groups: int) -> Problem:
    """Prompts with so many beginnings, and settings of which no bound knows: host cache, chunks, batches."""
    base = space_384(shared_prefix_tokens=3000)
    assert base.demand.synthetic is not None
    today = replace(base.baseline, variant="Q8_0", cache_prompt=True, parallel_slots=2)
    varied = itertools.product((1, 2, 4, 8), (512, 2048), (0, 16384), (0, 64))
    return replace(
        base,
        promise=Promise(ttft_s=1.0),
        demand=replace(base.demand, peak_rate=3.0, synthetic=replace(base.demand.synthetic, prefix_groups=groups)),
        baseline=today,
        candidates=tuple(
            replace(
                today,
                parallel_slots=slots,
                batch_size=batch,
                cache_ram_mib=kept,
                cache_idle_slots=kept > 0,
                cache_reuse=chunk,
            )
            for slots, batch, kept, chunk in varied
        ),
        pruned=(),
        memory_bytes={},
    )


def reversed_hints(problem: Problem, results: Sequence[TrialResult]) -> Preference:
    """What would have been asked first comes last."""
    return {candidate: -place for candidate, place in hints(problem, results).items()}


def prompts_alone(rate: float) -> Problem:
    """Prompts that share nothing, at several servers: what is asked at a slower rate missed at faster ones before."""
    base = space_384(shared_prefix_tokens=0)
    today = replace(base.baseline, variant="Q8_0", cache_prompt=True, parallel_slots=8)
    varied = itertools.product((1, 2, 4, 8, 16, 32), (512, 1024, 2048, 4096))
    return replace(
        base,
        promise=Promise(ttft_s=0.8),
        demand=replace(base.demand, peak_rate=rate),
        baseline=today,
        candidates=tuple(replace(today, parallel_slots=slots, batch_size=batch) for slots, batch in varied),
        pruned=(),
        memory_bytes={},
    )


@pytest.mark.parametrize(
    "searches",
    [(conversations(10), conversations(30)), (prompts_alone(2.0), prompts_alone(4.0))],
    ids=["beginnings that are shared", "prompts alone"],
)
def test_a_simulated_search_among_equals_takes_fewer_trials_with_hints_and_answers_the_same(
    searches: tuple[Problem, ...],
) -> None:
    spent = []
    for searched_in in searches:
        (plain, without), (hinted, with_hints), (_, turned) = (
            lived(searched_in, way) for way in (unhinted, hints, reversed_hints)
        )
        assert plain.choice is not None
        assert hinted.choice is not None
        assert (hinted.kind, hinted.choice.monthly_cost, hinted.cost_gap) == (
            plain.kind,
            plain.choice.monthly_cost,
            plain.cost_gap,
        )
        assert with_hints <= without
        spent.append((with_hints, without, turned))
    with_hints, without, turned = map(sum, zip(*spent, strict=True))
    assert with_hints < without < turned, spent
