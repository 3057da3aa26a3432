"""A question is answered by the recorded trial that asked the same, or by one that implies it, and by nothing else."""

from __future__ import annotations

import pytest

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.search.problem import Measurement
from slotune.search.replay import RecordedAnswer, RecordedSearch, RecordedTrials
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome
from tests.search.worlds import World, candidate, problem

TODAY, BEST = candidate(slots=8), candidate("Q8_0", slots=8)
"""They differ in nothing that need not be monotone."""
GUESSING = candidate("Q8_0", slots=8, speculation="ngram-mod")
CONFIDENCE = Measurement().confidence


def only(*results: TrialResult) -> RecordedSearch:
    asked = problem([TODAY, BEST])
    return RecordedSearch(asked, results, RecordedAnswer("Infeasible", None, None, None, 0, 0.0))


def passed(one: Candidate, rate: float, block: int = 0, purpose: Purpose = Purpose.SEARCH) -> TrialResult:
    return World({one: 1e9}).measure(Trial(one, rate, block, CONFIDENCE, purpose=purpose))


def missed(one: Candidate, rate: float, outcome: Outcome, block: int = 0) -> TrialResult:
    return World({}, verdicts=lambda _: outcome).measure(Trial(one, rate, block, CONFIDENCE))


def answer_at(search: RecordedSearch, one: Candidate, rate: float, **more: object) -> TrialResult | None:
    return RecordedTrials(search.problem, search.results).answer(
        Trial(one, rate, confidence=CONFIDENCE, **more)  # type: ignore[arg-type]  # a test's shorthand
    )


def test_a_pass_answers_slower_rates_and_takes_as_much_longer():
    search = only(passed(BEST, 3.0))
    slower = answer_at(search, BEST, 1.0)
    assert slower is not None
    assert (slower.passed, slower.trial.rate) == (True, 1.0)
    assert slower.gpu_seconds == pytest.approx(3 * search.results[0].gpu_seconds)
    assert answer_at(search, BEST, 6.0) is None


def test_a_fail_answers_faster_rates_in_the_same_time():
    search = only(missed(BEST, 3.0, Outcome.FAIL))
    faster = answer_at(search, BEST, 6.0)
    assert faster is not None
    assert (faster.verdict.outcome, faster.gpu_seconds) == (Outcome.FAIL, search.results[0].gpu_seconds)
    assert answer_at(search, BEST, 1.0) is None


def test_a_fail_at_a_slower_rate_overrules_a_pass_at_a_faster_one():
    search = only(passed(BEST, 6.0), missed(BEST, 1.0, Outcome.FAIL))
    between = answer_at(search, BEST, 3.0)
    assert between is not None
    assert between.verdict.outcome is Outcome.FAIL


@pytest.mark.parametrize("outcome", [Outcome.INCONCLUSIVE, Outcome.INVALID])
def test_what_decided_nothing_answers_only_itself(outcome):
    search = only(missed(BEST, 3.0, outcome))
    assert answer_at(search, BEST, 3.0) is not None
    assert answer_at(search, BEST, 1.0) is None
    assert answer_at(search, BEST, 6.0) is None


def test_seeds_are_never_mixed():
    search = only(passed(BEST, 3.0))
    assert answer_at(search, BEST, 3.0, seed_block=1, purpose=Purpose.CONFIRM) is None


def test_a_verdict_that_is_less_sure_than_asked_answers_nothing():
    search = only(passed(BEST, 3.0))
    asked = Trial(BEST, 1.0, confidence=0.99)
    assert RecordedTrials(search.problem, search.results).answer(asked) is None


def test_nothing_is_implied_for_what_pays_off_under_full_load_only():
    search = only(passed(GUESSING, 6.0))
    assert answer_at(search, GUESSING, 6.0) is not None
    assert answer_at(search, GUESSING, 3.0) is None


def test_a_pass_under_full_load_answers_slower_rates_once_half_of_it_was_shown_to_hold():
    search = only(passed(GUESSING, 6.0), passed(GUESSING, 3.0, 2, Purpose.PARTIAL))
    for rate in (5.0, 3.0, 1.0):
        found = answer_at(search, GUESSING, rate)
        assert found is not None
        assert found.passed
    assert answer_at(search, GUESSING, 7.0) is None


def test_a_fail_of_what_is_slowest_when_quiet_answers_nothing_about_faster_rates():
    assert answer_at(only(missed(GUESSING, 3.0, Outcome.FAIL)), GUESSING, 6.0) is None


def test_a_block_of_a_comparison_is_answered_by_itself_alone():
    search = only(passed(BEST, 6.0, 3, Purpose.FINALIST))
    assert answer_at(search, BEST, 6.0, seed_block=3, purpose=Purpose.FINALIST) is not None
    assert answer_at(search, BEST, 3.0, seed_block=3, purpose=Purpose.FINALIST) is None


def test_a_server_that_never_came_up_does_so_at_no_rate_and_on_no_seeds():
    world = World({}, failures={BEST: FailureClass.OUT_OF_MEMORY_KV})
    search = only(world.measure(Trial(BEST, 6.0, confidence=CONFIDENCE)))
    found = answer_at(search, BEST, 0.1, seed_block=1)
    assert found is not None
    assert found.failure is FailureClass.OUT_OF_MEMORY_KV


def test_more_looks_at_the_machine_than_were_recorded_repeat_the_last_one():
    search = only(passed(TODAY, 6.0, 3, Purpose.SENTINEL))
    found = answer_at(search, TODAY, 6.0, seed_block=7, purpose=Purpose.SENTINEL)
    assert found is not None
    assert found.trial.seed_block == 7
