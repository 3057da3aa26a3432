"""What trials show to keep the promise takes two passes, nothing against it, half of the load and answers that hold."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from slotune.llama.candidate import Candidate
from slotune.search.decision import monthly_cost
from slotune.search.kept import cheapest_kept, is_kept
from slotune.search.problem import Measurement, Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome
from tests.search.worlds import QUALITY, World, candidate, problem

TODAY, BEST = candidate(slots=8), candidate("Q8_0", slots=8)
GUESSING = candidate("Q8_0", slots=8, speculation="ngram-mod")
CONFIDENCE = Measurement().confidence


def passed(one: Candidate, rate: float, block: int = 0, purpose: Purpose = Purpose.SEARCH) -> TrialResult:
    return World({one: 1e9}).measure(Trial(one, rate, block, CONFIDENCE, purpose=purpose))


def twice(one: Candidate, rate: float) -> list[TrialResult]:
    return [passed(one, rate), passed(one, rate, 1, Purpose.CONFIRM)]


def missed(
    one: Candidate, rate: float, outcome: Outcome, block: int = 0, purpose: Purpose = Purpose.SEARCH
) -> TrialResult:
    return World({}, verdicts=lambda _: outcome).measure(Trial(one, rate, block, CONFIDENCE, purpose=purpose))


def kept(*results: TrialResult, asked: Problem | None = None) -> Candidate | None:
    best = cheapest_kept(asked or problem([TODAY, BEST, GUESSING]), results)
    return best and best.candidate


TWICE = twice(BEST, 3.0)
CASES = {
    "a confirmed pass counts": (TWICE, BEST),
    "a lone pass does not": (TWICE[:1], None),
    "nor does a lone confirmation": (TWICE[1:], None),
    "nor one on the seeds of the search": ([TWICE[0], passed(BEST, 3.0, 0, Purpose.CONFIRM)], None),
    "nor one at a slower rate alone": ([passed(BEST, 3.0), passed(BEST, 0.5, 1, Purpose.CONFIRM)], None),
    "a sentinel is no pass": ([passed(BEST, 3.0, purpose=Purpose.SENTINEL), TWICE[1]], None),
    "nor is a block of a comparison": ([passed(BEST, 3.0, 3, Purpose.FINALIST), TWICE[1]], None),
    "a pass that fresh seeds overruled does not count": ([*TWICE, missed(BEST, 3.0, Outcome.FAIL, 1)], None),
    "nor one whose slower rate failed": ([*TWICE, missed(BEST, 1.0, Outcome.FAIL)], None),
    "nor one whose slower rate stayed open": ([*TWICE, missed(BEST, 3.0, Outcome.INCONCLUSIVE, 1)], None),
    "a block that decides nothing says nothing": (
        [*TWICE, missed(BEST, 3.0, Outcome.INCONCLUSIVE, 3, Purpose.FINALIST)],
        BEST,
    ),
    "a faster rate that failed says nothing": ([*TWICE, missed(BEST, 6.0, Outcome.FAIL)], BEST),
    "a measurement at fault says nothing": ([*TWICE, missed(BEST, 3.0, Outcome.INVALID, 1)], BEST),
    "more servers than are allowed do not count": (twice(BEST, 0.1), None),
    "guessed tokens do not count without half of the load": (twice(GUESSING, 6.0), None),
    "they count with it": ([*twice(GUESSING, 6.0), passed(GUESSING, 3.0, 2, Purpose.PARTIAL)], GUESSING),
    "half of another rate is not it": ([*twice(GUESSING, 6.0), passed(GUESSING, 2.0, 2, Purpose.PARTIAL)], None),
    "of equals the less lossy one is named": ([*twice(BEST, 3.0), *twice(TODAY, 3.0)], TODAY),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case)
def test_what_counts_as_keeping_the_promise(case):
    results, want = CASES[case]
    assert kept(*results) == want


def test_a_pair_counts_only_when_its_answers_hold():
    asked = problem([TODAY, BEST], quality=QUALITY)
    compared = World({}).measure(Trial(BEST, 0.0, purpose=Purpose.QUALITY))
    refused = World({}, verdicts=lambda _: Outcome.FAIL).measure(Trial(BEST, 0.0, purpose=Purpose.QUALITY))
    assert kept(*TWICE, asked=asked) is None
    assert kept(*TWICE, compared, asked=asked) == BEST
    assert kept(*TWICE, compared, refused, asked=asked) is None


def test_the_cheapest_says_what_it_costs():
    best = cheapest_kept(problem([TODAY, BEST]), [*twice(TODAY, 1.5), *twice(BEST, 3.0)])
    assert best is not None
    assert (best.candidate, best.replicas, best.monthly_cost) == (BEST, 2, monthly_cost(2, Decimal("0.80")))


def test_a_candidate_that_may_not_be_tried_does_not_count():
    asked = problem([TODAY, BEST])
    assert kept(*TWICE, asked=replace(asked, candidates=(TODAY,))) is None


def test_what_others_measured_may_deny_it_but_not_show_it():
    asked = problem([TODAY, BEST])
    assert is_kept(asked, BEST, 2, TWICE)
    assert not is_kept(asked, BEST, 1, TWICE)
    assert not is_kept(asked, BEST, 2, TWICE[:1], TWICE)
    assert not is_kept(asked, BEST, 2, TWICE, [missed(BEST, 2.0, Outcome.FAIL)])


@pytest.mark.parametrize("today", [TODAY, GUESSING], ids=["today", "today, guessing"])
def test_what_runs_today_takes_one_pass_and_nothing_against_it(today):
    asked = replace(problem([TODAY, BEST, GUESSING]), baseline=today)
    once = [passed(today, 3.0)]
    assert is_kept(asked, today, 2, once, stays=True)
    assert not is_kept(asked, today, 2, once)
    assert not is_kept(asked, today, 2, [], stays=True)
    assert not is_kept(asked, today, 2, once, [missed(today, 3.0, Outcome.FAIL, 1)], stays=True)
