"""Fewer bits win only when their answers hold: what is compared when, and what comes of every end of a comparison.

A world knows each pair's true divergence; exhaustive search over the pairs that hold is the truth.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.demand import Prompt
from slotune.quality.limits import STRICT
from slotune.search.answers import Answers, PairState, judged
from slotune.search.best_first import next_step
from slotune.search.decision import DecisionKind
from slotune.search.pairs import Pair, comparison_candidate, gated_pairs, pair_of
from slotune.search.problem import Budget, Hardware, Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import (
    GPU,
    QUALITY,
    REFERENCE,
    KnownBounds,
    World,
    candidate,
    cheapest,
    divergence,
    live,
    problem,
)

TODAY = candidate("F16", slots=8)
SMALL = candidate("Q4_0", slots=8)
MIDDLE = candidate("Q8_0", slots=8)
BROKEN = 0.2
"""Nats beyond every preset."""


def compared(results: list[TrialResult]) -> list[tuple[Purpose, str]]:
    """Looks at answers, in order: (purpose, variant)."""
    return [(r.trial.purpose, r.trial.candidate.variant) for r in results if r.trial.purpose.asks_answers]


# ---------------------------------------------------------------------- the story


def test_the_reference_is_recorded_then_its_noise_then_the_pair_right_before_its_first_load():
    world = World({TODAY: 1.0, SMALL: 6.0})
    decision, results = live(problem([TODAY, SMALL], replicas_today=6, quality=QUALITY), world)
    assert [(r.trial.purpose, r.trial.candidate.variant) for r in results] == [
        (Purpose.BASELINE, "F16"),
        (Purpose.SEARCH, "F16"),  # at equal cost the reference's own pair comes first
        (Purpose.REFERENCE, "F16"),
        (Purpose.QUALITY, "F16"),
        (Purpose.QUALITY, "Q4_0"),
        (Purpose.SEARCH, "Q4_0"),
        (Purpose.CONFIRM, "Q4_0"),
    ]
    assert decision.choice is not None
    assert decision.choice.candidate == SMALL
    assert any("its answers keep Balanced" in sentence for sentence in decision.proved)
    assert any("on random tokens" in sentence for sentence in decision.not_proved)


def test_answers_that_were_compared_on_prompts_of_users_need_no_such_word():
    space = problem([TODAY, SMALL], replicas_today=6, quality=QUALITY)
    prompts = (Prompt("one"), Prompt("two"))
    space = replace(space, demand=replace(space.demand, synthetic=None, prompts=prompts))
    decision, _ = live(space, World({TODAY: 1.0, SMALL: 6.0}))
    assert any("its answers keep Balanced" in sentence for sentence in decision.proved)
    assert decision.not_proved == ()


def test_a_pair_that_answers_too_differently_is_out_with_the_numbers_and_never_put_under_load():
    world = World({TODAY: 1.0, SMALL: 6.0, MIDDLE: 3.0}, divergences={pair_of(SMALL): BROKEN})
    decision, results = live(problem([TODAY, SMALL, MIDDLE], replicas_today=6, quality=QUALITY), world)
    assert decision.kind is DecisionKind.FOUND
    assert decision.choice is not None
    assert (decision.choice.candidate, decision.cost_gap) == (MIDDLE, 0)
    assert SMALL not in {r.trial.candidate for r in results}
    refused = next(r for r in decision.rejections if r.candidate == SMALL)
    assert (refused.code, refused.undecided) == ("QualityTooLow", False)
    assert "0.2 nats" in refused.reason
    assert "Balanced allows 0.05" in refused.reason


def test_all_candidates_of_a_failed_pair_are_out_by_one_comparison():
    many = [candidate("Q4_0", slots=slots) for slots in (1, 2, 4, 8)]
    world = World({TODAY: 6.0} | dict.fromkeys(many, 6.0), divergences={pair_of(SMALL): BROKEN})
    hardware = {GPU: Hardware(GPU, Decimal("0.80"), replicas_max=8)}
    decision, results = live(problem([candidate("F16", slots=1), *many], quality=QUALITY, hardware=hardware), world)
    assert [r.code for r in decision.rejections if r.candidate in many] == ["QualityTooLow"] * 4
    assert compared(results).count((Purpose.QUALITY, "Q4_0")) == 1


def test_nothing_is_compared_that_nothing_leads_to():
    world = World({TODAY: 6.0, SMALL: 6.0})
    decision, results = live(problem([TODAY, SMALL], quality=QUALITY), world)
    assert compared(results) == []
    assert decision.choice is not None
    assert decision.choice.candidate == TODAY
    assert {finding.state for finding in decision.answers} == {PairState.UNGATED, PairState.OPEN}


@pytest.mark.parametrize(
    ("candidates", "quality"),
    [([TODAY, SMALL], None), ([SMALL, replace(SMALL, parallel_slots=16)], QUALITY)],
    ids=["nobody asks", "there is only one pair"],
)
def test_nothing_is_compared_when_there_is_nothing_to_find_out(candidates, quality):
    world = World(dict.fromkeys(candidates, 3.0), divergences={pair_of(SMALL): BROKEN})
    decision, results = live(problem(candidates, replicas_today=2, quality=quality, explain=True), world)
    assert compared(results) == []
    assert decision.answers == ()
    assert decision.kind is DecisionKind.FOUND


def test_a_single_pair_that_is_not_the_reference_is_said_not_to_be_compared():
    decision, _ = live(problem([SMALL], quality=QUALITY), World({SMALL: 6.0}))
    assert any("quality Balanced against F16 was not measured" in words for words in decision.not_proved)


# --------------------------------------------------------------- what runs today


def test_what_runs_today_is_measured_first_whatever_its_answers_are():
    first = next_step(problem([SMALL, TODAY], quality=QUALITY), [])
    assert isinstance(first, Trial)
    assert first.purpose is Purpose.BASELINE


def test_a_baseline_that_answers_too_differently_is_reported_and_is_not_the_answer():
    world = World({SMALL: 6.0, TODAY: 2.0}, divergences={pair_of(SMALL): BROKEN})
    decision, _ = live(problem([SMALL, TODAY], quality=QUALITY), world)
    assert decision.choice is not None
    assert (decision.choice.candidate, decision.choice.replicas) == (TODAY, 3)
    assert decision.today is not None
    assert decision.today.result.passed
    todays = next(finding for finding in decision.answers if finding.is_todays)
    assert (todays.state, todays.code) == (PairState.FAILED, "QualityTooLow")


def test_where_only_todays_answers_fail_there_is_no_answer_and_the_reason_says_so():
    world = World({SMALL: 6.0, TODAY: 0.1}, divergences={pair_of(SMALL): BROKEN})
    decision, _ = live(problem([SMALL, TODAY], quality=QUALITY), world)
    assert (decision.kind, decision.choice) == (DecisionKind.INFEASIBLE, None)
    assert "Q4_0 with KV cache f16 would answer too differently for Balanced" in decision.reason


def test_todays_answers_are_told_even_when_the_search_had_no_need_to_know():
    world = World({MIDDLE: 1.0, TODAY: 6.0}, divergences={pair_of(MIDDLE): 0.002})
    decision, results = live(problem([MIDDLE, TODAY], replicas_today=6, quality=QUALITY, explain=True), world)
    assert compared(results)[-1] == (Purpose.QUALITY, "Q8_0")
    todays = next(finding for finding in decision.answers if finding.is_todays)
    assert todays.divergence is not None
    assert todays.divergence.mean_kld == 0.002


def test_where_answers_cannot_be_judged_todays_pair_stays_since_nothing_gets_worse():
    world = World({MIDDLE: 6.0, SMALL: 6.0}, verdicts=lambda t: Outcome.INVALID if t.purpose.asks_answers else None)
    decision, _ = live(problem([MIDDLE, SMALL], replicas_today=2, quality=QUALITY), world)
    assert decision.choice is not None
    assert (decision.choice.candidate, decision.choice.replicas) == (MIDDLE, 1)
    assert any("it answers as that does" in words for words in decision.not_proved)


# ------------------------------------------------------------- not every comparison tells


def test_a_comparison_at_fault_is_repeated_once():
    world = World(
        {TODAY: 1.0, SMALL: 6.0},
        verdicts=lambda t: Outcome.INVALID if t.purpose.asks_answers and t.attempt == 1 else None,
    )
    decision, results = live(problem([TODAY, SMALL], replicas_today=6, quality=QUALITY), world)
    assert decision.choice is not None
    assert decision.choice.candidate == SMALL
    assert [r.trial.attempt for r in results if r.trial.purpose.asks_answers] == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize("outcome", [Outcome.INVALID, Outcome.INCONCLUSIVE])
def test_a_pair_that_cannot_be_judged_is_named_undecided_and_counted_in_the_gap(outcome):
    world = World(
        {TODAY: 3.0, SMALL: 6.0},
        verdicts=lambda t: outcome if t.purpose is Purpose.QUALITY and t.candidate.variant == "Q4_0" else None,
    )
    decision, results = live(problem([TODAY, SMALL], replicas_today=2, quality=QUALITY), world)
    assert decision.choice is not None
    assert decision.choice.candidate == TODAY
    assert decision.cost_gap == Decimal("584.00")
    undecided = next(r for r in decision.rejections if r.candidate == SMALL)
    assert (undecided.code, undecided.undecided) == ("QualityUndecided", True)
    assert any("whether Q4_0 with KV cache f16 keeps Balanced is not decided" in words for words in decision.not_proved)
    tried = compared(results).count((Purpose.QUALITY, "Q4_0"))
    assert tried == (2 if outcome is Outcome.INVALID else 1)  # the same steps say the same again


def test_without_a_reference_every_other_pair_is_undecided_with_the_reason():
    world = World(
        {TODAY: 3.0, SMALL: 6.0, MIDDLE: 6.0},
        verdicts=lambda t: Outcome.FAIL if t.purpose is Purpose.REFERENCE else None,
    )
    decision, results = live(problem([TODAY, SMALL, MIDDLE], replicas_today=2, quality=QUALITY), world)
    assert compared(results) == [(Purpose.REFERENCE, "F16")]
    assert [r.code for r in decision.rejections] == ["QualityUndecided"] * 2
    assert all("could not be recorded" in r.reason for r in decision.rejections)


def test_a_reference_that_fits_nowhere_is_never_started():
    hardware = {GPU: Hardware(GPU, Decimal("0.80"), memory_bytes=12 * 10**9, replicas_max=8)}
    world = World({MIDDLE: 6.0, SMALL: 6.0})
    space = problem([MIDDLE, SMALL], replicas_today=2, quality=QUALITY, hardware=hardware)
    decision, results = live(space, world)
    assert compared(results) == []
    assert any("fits on no GPU class" in words for words in decision.not_proved)


def test_the_reference_goes_where_it_fits():
    hardware = {
        "small": Hardware("small", Decimal("0.40"), memory_bytes=12 * 10**9, replicas_max=8),
        "large": Hardware("large", Decimal("2.00"), memory_bytes=80 * 10**9, replicas_max=8),
    }
    today, other = candidate("Q8_0", "small", 8), candidate("Q4_0", "small", 8)
    space = problem([today, other], replicas_today=2, quality=QUALITY, hardware=hardware)
    _, results = live(space, World({today: 6.0, other: 6.0}))
    recorded = next(r.trial.candidate for r in results if r.trial.purpose is Purpose.REFERENCE)
    assert (recorded.gpu_class, recorded.variant) == ("large", "F16")


def test_a_reference_that_differs_from_itself_too_much_decides_nothing():
    world = World({TODAY: 3.0, SMALL: 6.0}, divergences={pair_of(TODAY): 0.03})
    decision, results = live(problem([TODAY, SMALL], replicas_today=2, quality=QUALITY), world)
    assert compared(results).count((Purpose.QUALITY, "F16")) == 2
    assert any("the reference cannot be compared with itself" in words for words in decision.not_proved)
    assert decision.choice is not None
    assert decision.choice.candidate == TODAY


def test_a_pair_whose_smallest_server_cannot_start_is_out_by_its_failure():
    space = problem([TODAY, SMALL], replicas_today=6, quality=QUALITY)
    broken = comparison_candidate(space, pair_of(SMALL), GPU)
    fits = replace(space, candidates=(TODAY, replace(SMALL, context_per_slot=broken.context_per_slot)))

    class Corrupt(World):
        def measure(self, trial: Trial) -> TrialResult:
            result = super().measure(trial)
            if trial.candidate != broken:
                return result
            verdict = Verdict(Outcome.FAIL, "the file is cut short", "ModelUnreadable", 0.95)
            return replace(result, verdict=verdict, quality=None, failure=FailureClass.MODEL_UNREADABLE)

    decision, results = live(fits, Corrupt(dict.fromkeys(fits.candidates, 3.0)))
    assert compared(results).count((Purpose.QUALITY, "Q4_0")) == 1
    assert [(r.code, r.undecided) for r in decision.rejections] == [(FailureClass.MODEL_UNREADABLE.value, False)]
    assert decision.cost_gap == 0


# ------------------------------------------------------------------------ memory


def recorded(space: Problem, reference: str = REFERENCE, attempt: int = 1) -> TrialResult:
    """The end of a REFERENCE trial."""
    trial = Trial(
        comparison_candidate(space, Pair("F16", "f16", "f16"), GPU), 0.0, attempt=attempt, purpose=Purpose.REFERENCE
    )
    return TrialResult(trial, Verdict(Outcome.PASS, "recorded", "ReferenceRecorded", 0.95), 10.0, reference=reference)


def looked_at(space: Problem, pair: Pair, kld: float, reference: str = REFERENCE) -> TrialResult:
    """The end of a QUALITY trial."""
    trial = Trial(comparison_candidate(space, pair, GPU), 0.0, purpose=Purpose.QUALITY)
    verdict = Verdict(Outcome.PASS, "compared", "Compared", 0.95)
    return TrialResult(trial, verdict, 10.0, quality=divergence(kld, kld, kld, reference))


def test_other_limits_need_no_new_comparison():
    balanced = problem([TODAY, SMALL], quality=QUALITY)
    strict = replace(balanced, quality=replace(QUALITY, limits=STRICT))
    seen = [recorded(balanced), looked_at(balanced, pair_of(TODAY), 0.0), looked_at(balanced, pair_of(SMALL), 0.03)]
    states = [Answers.from_results(one, judged(one, seen)).of(SMALL).state for one in (balanced, strict)]
    assert states == [PairState.PASSED, PairState.FAILED]
    assert [balanced.key(r.trial) for r in seen] == [strict.key(r.trial) for r in seen]


def test_load_that_was_measured_while_nobody_looked_wins_only_once_the_answers_hold():
    off = problem([TODAY, SMALL], replicas_today=6)
    world = World({TODAY: 1.0, SMALL: 6.0})
    before, seen = live(off, world)
    assert before.choice is not None
    assert before.choice.candidate == SMALL
    asked = replace(off, quality=QUALITY)
    decision, results = live(replace(asked, budget=Budget(1e9, trials=len(seen))), world, results=seen)
    assert results == seen
    assert decision.kind is DecisionKind.BUDGET_EXHAUSTED
    assert decision.choice is None or decision.choice.candidate == TODAY
    decision, results = live(asked, world, results=seen)
    assert [r.trial.purpose for r in results[len(seen) :]] == [Purpose.REFERENCE, Purpose.QUALITY, Purpose.QUALITY]
    assert decision.choice is not None
    assert decision.choice.candidate == SMALL


def test_faults_with_a_reference_of_before_do_not_count_with_another_one():
    space = problem([TODAY, SMALL], quality=QUALITY)
    look = looked_at(space, pair_of(SMALL), 0.0)
    faulty = replace(look, quality=None, verdict=Verdict(Outcome.INVALID, "unreachable", "ServerUnreachable", 0.95))
    seen = [recorded(space), looked_at(space, pair_of(TODAY), 0.0), faulty]
    anew = [recorded(space, "another", attempt=2), looked_at(space, pair_of(TODAY), 0.0, "another"), faulty]
    assert Answers.from_results(space, judged(space, [*seen, faulty])).of(SMALL).state is PairState.UNDECIDED
    assert Answers.from_results(space, judged(space, [*seen, *anew])).of(SMALL).state is PairState.OPEN
    third = [recorded(space, "a third", attempt=3), looked_at(space, pair_of(TODAY), 0.0, "a third")]
    assert Answers.from_results(space, judged(space, [*seen, *anew, *third])).of(SMALL).state is PairState.OPEN


def test_judging_twice_is_judging_once():
    space = problem([TODAY, SMALL], quality=QUALITY)
    seen = [recorded(space), looked_at(space, pair_of(TODAY), 0.0), looked_at(space, pair_of(SMALL), BROKEN)]
    once = judged(space, seen)
    assert judged(space, once) == once
    assert [r.verdict.code for r in once] == ["ReferenceRecorded", "NoiseFloorLow", "QualityTooLow"]


def test_another_reference_makes_what_was_compared_with_the_last_one_worthless():
    space = problem([TODAY, SMALL], quality=QUALITY)
    seen = [recorded(space), looked_at(space, pair_of(TODAY), 0.0), looked_at(space, pair_of(SMALL), 0.0)]
    assert Answers.from_results(space, judged(space, seen)).of(SMALL).state is PairState.PASSED
    anew = [*seen, recorded(space, "another", attempt=2)]
    answers = Answers.from_results(space, judged(space, anew))
    assert answers.of(SMALL).state is PairState.OPEN
    owed = answers.owed_before(SMALL)
    assert owed is not None
    assert (owed.candidate.variant, owed.attempt) == ("F16", 2)  # a trial of its own, not the one that is known


def test_a_reference_that_is_gone_is_recorded_again_only_when_something_is_to_be_compared():
    space = problem([TODAY, SMALL, MIDDLE], quality=QUALITY)
    seen = [looked_at(space, pair_of(TODAY), 0.0), looked_at(space, pair_of(SMALL), 0.0)]
    answers = Answers.from_results(space, judged(space, seen))
    assert answers.of(SMALL).state is PairState.PASSED
    assert answers.owed_before(SMALL) is None
    owed = answers.owed_before(MIDDLE)
    assert owed is not None
    assert owed.purpose is Purpose.REFERENCE
    equal = Answers.from_results(space, judged(space, [*seen, recorded(space)]))
    assert equal.of(SMALL).state is PairState.PASSED  # compared with the very same one
    other = Answers.from_results(space, judged(space, [*seen, recorded(space, "another")]))
    assert other.of(SMALL).state is PairState.OPEN


def test_what_is_compared_with_a_reference_of_before_is_at_fault_and_tried_once_more():
    space = problem([TODAY, SMALL], quality=QUALITY)
    stale = looked_at(space, pair_of(SMALL), 0.0, "of before")
    seen = [recorded(space), looked_at(space, pair_of(TODAY), 0.0), stale]
    assert Answers.from_results(space, judged(space, seen)).of(SMALL).state is PairState.OPEN
    assert Answers.from_results(space, judged(space, [*seen, stale])).of(SMALL).state is PairState.UNDECIDED


def test_a_comparison_depends_on_files_prompts_and_engine_and_not_on_what_is_owed():
    space = problem([TODAY, SMALL], quality=QUALITY, context="one SLO")
    again = replace(space, context="another SLO")
    look = Trial(comparison_candidate(space, pair_of(SMALL), GPU), 0.0, purpose=Purpose.QUALITY)
    load = Trial(SMALL, 1.0)
    assert space.key(look) == again.key(look)
    assert space.key(load) != again.key(load)
    assert space.contexts == {
        "one SLO",
        *(space.context_of(replace(look, candidate=c)) for c in (TODAY, SMALL, MIDDLE)),
    }


def test_to_record_and_to_compare_are_two_questions_of_one_server():
    space = problem([TODAY, SMALL], quality=QUALITY)
    server = comparison_candidate(space, pair_of(TODAY), GPU)
    keys = {space.key(Trial(server, 0.0, purpose=purpose)) for purpose in (Purpose.REFERENCE, Purpose.QUALITY)}
    assert len(keys) == 2


# --------------------------------------------------------------------------- the laws


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Problem, World, KnownBounds]:
    hardware = {
        name: Hardware(name, Decimal(draw(st.integers(10, 300))) / 100, replicas_max=draw(st.integers(1, 8)))
        for name in ("a", "b")[: draw(st.integers(1, 2))]
    }
    one = st.builds(
        lambda variant, kv, gpu, n: candidate(variant, gpu, n, cache_type_k=kv, cache_type_v=kv),
        st.sampled_from(["F16", "Q8_0", "Q4_0"]),
        st.sampled_from(["f16", "q8_0"]),
        st.sampled_from(sorted(hardware)),
        st.integers(1, 64),
    )
    candidates = draw(st.lists(one, min_size=1, max_size=12, unique=True))
    truth = {c: draw(st.floats(0.05, 12.0)) for c in candidates}
    reference = Pair("F16", "f16", "f16")
    moved = {p: draw(st.sampled_from([0.0, 0.001, 0.03, BROKEN])) for p in sorted(set(map(pair_of, candidates)))}
    world = World(truth, divergences=moved | {reference: 0.0})
    optimism = {c: draw(st.floats(1.0, 3.0)) for c in candidates}
    space = problem(
        candidates,
        peak_rate=draw(st.floats(0.5, 8.0)),
        replicas_today=draw(st.integers(1, 5)),
        hardware=hardware,
        explain=draw(st.booleans()),
        quality=replace(QUALITY, limits=STRICT) if draw(st.booleans()) else QUALITY,
    )
    return space, world, KnownBounds(world, lambda c: optimism.get(c, 1.0))


def holds(space: Problem, world: World, one: Candidate) -> bool:
    """The truth about a candidate's answers, where there is a choice of pairs."""
    assert space.quality is not None
    gated = pair_of(one) in gated_pairs(space)
    return not gated or world.divergences[pair_of(one)] <= space.quality.limits.mean_kld_max


@given(spaces())
@settings(max_examples=150, deadline=None)
def test_the_answer_is_the_cheapest_of_those_whose_answers_hold(given_space):
    space, world, bounds = given_space
    good = {c: world.capacity[c] if holds(space, world, c) else 0.0 for c in space.candidates}
    want = cheapest(space, good)
    decision, _ = live(space, world, lambda *_: bounds)
    if want is None:
        assert (decision.kind, decision.choice) == (DecisionKind.INFEASIBLE, None)
        return
    assert decision.kind is DecisionKind.FOUND
    assert decision.choice is not None
    assert holds(space, world, decision.choice.candidate)
    assert decision.choice.replicas * space.hardware[decision.choice.candidate.gpu_class].price_per_hour == want
    assert decision.cost_gap == 0


@given(spaces())
@settings(max_examples=100, deadline=None)
def test_every_pair_is_compared_at_most_once_and_none_is_put_under_load_before(given_space):
    space, world, bounds = given_space
    decision, results = live(space, world, lambda *_: bounds)
    looks = [(r.trial.purpose, pair_of(r.trial.candidate)) for r in results if r.trial.purpose.asks_answers]
    assert len(looks) == len(set(looks))
    gated = gated_pairs(space) - {pair_of(space.baseline)}
    seen: set[Pair] = set()
    for result in results:
        pair = pair_of(result.trial.candidate)
        if result.trial.purpose is Purpose.QUALITY:
            seen.add(pair)
        elif result.trial.purpose.puts_load and result.trial.purpose is not Purpose.EXPLAIN:
            assert pair not in gated or (pair in seen and holds(space, world, result.trial.candidate))
    if not gated_pairs(space):
        assert not looks
    assert len({r.candidate for r in decision.rejections}) == len(decision.rejections)


@given(spaces(), st.randoms(use_true_random=False), st.integers(1, 40), st.floats(60, 3000))
@settings(max_examples=200, deadline=None)
def test_faults_and_a_short_budget_never_lead_to_a_false_proof(given_space, random, trials, gpu_seconds):
    space, world, bounds = given_space
    most = space.hardware[space.baseline.gpu_class].replicas_max
    space = replace(space, replicas_today=min(space.replicas_today, most), budget=Budget(gpu_seconds, trials))
    world.verdicts = lambda _: random.choice([None, None, None, Outcome.INVALID, Outcome.INCONCLUSIVE])
    want = cheapest(space, {c: world.capacity[c] if holds(space, world, c) else 0.0 for c in space.candidates})
    decision, results = live(space, world, lambda *_: bounds)
    assert len(results) <= trials
    assert sum(r.gpu_seconds for r in results) <= gpu_seconds
    assert decision.gpu_seconds == pytest.approx(sum(r.gpu_seconds for r in results))
    if decision.kind is DecisionKind.INFEASIBLE:
        assert want is None
    if decision.choice is None:
        return
    chosen = decision.choice.candidate
    if not holds(space, world, chosen):  # never promoted: only what runs today may stay, and it is said
        assert pair_of(chosen) == pair_of(space.baseline)
        assert any("it answers as that does" in words for words in decision.not_proved)
    elif decision.cost_gap == 0:
        assert want == decision.choice.replicas * space.hardware[chosen.gpu_class].price_per_hour


@given(spaces(), st.integers(0, 30))
@settings(max_examples=75, deadline=None)
def test_dying_between_two_trials_changes_nothing(given_space, killed_after):
    space, world, bounds = given_space
    lived_through, results = live(space, world, lambda *_: bounds)
    again, resumed = live(space, world, lambda *_: bounds, results[:killed_after])
    assert again == lived_through
    assert resumed == results
