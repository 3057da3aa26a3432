"""The strongest reason against a candidate is the one that is given."""

from __future__ import annotations

from slotune.search import rejections
from slotune.verdict.verdicts import Outcome
from tests.search.worlds import World, candidate, live, problem


def test_the_order_of_the_reasons_is_locked():
    assert [check.__name__ for check in rejections.CHECKS] == [
        "_could_not_run",
        "_answers_too_different",
        "_did_not_pass",
        "_can_never_keep_it",
        "_needs_too_many",
        "_costs_more",
        "_passed_without_being_cheaper",
        "_cannot_be_cheaper",
        "_answers_undecided",
        "_not_tried",
    ]


def test_a_measured_miss_says_at_which_rate():
    baseline, winner = candidate(slots=1), candidate(slots=8)
    decision, _ = live(problem([baseline, winner]), World({baseline: 1.0, winner: 6.0}))
    (miss,) = decision.rejections
    assert miss.rate == 6.0
    assert miss.reason.startswith("at 6 requests/s")


def test_a_candidate_that_was_never_run_says_why_it_need_not():
    baseline, winner, lossy = candidate(slots=1), candidate("F16", slots=8), candidate("Q4_0", slots=8)
    decision, results = live(problem([baseline, winner, lossy]), World({baseline: 1.0, winner: 6.0, lossy: 6.0}))
    assert lossy not in {r.trial.candidate for r in results}
    reason = next(r for r in decision.rejections if r.candidate == lossy)
    assert (reason.code, reason.undecided) == ("NoCheaper", False)
    assert "loses more bits" in reason.reason


def test_an_inconclusive_candidate_above_the_answers_cost_is_not_undecided():
    baseline, vague = candidate(slots=1), candidate(slots=8)
    decision, _ = live(
        problem([baseline, vague], peak_rate=6.0),
        World(
            {baseline: 6.0, vague: 3.0},
            verdicts=lambda t: Outcome.INCONCLUSIVE if t.candidate == vague else None,
        ),
    )
    assert decision.cost_gap == 0
    assert not any(r.undecided for r in decision.rejections)
