"""When searches count as one answer: one winner, or winners that cost the same; and how sure an answer says it is."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bench.repeatability import Answer, agreement, table
from slotune.report.document import to_document
from slotune.search.problem import Measurement
from slotune.verdict.verdicts import Outcome
from tests.search.worlds import World, candidate, live, problem

SMALL, LARGE = candidate(slots=1), candidate(slots=8)


def found(winner: str, replicas: int, cost: int) -> Answer:
    return Answer("Found", winner, replicas, Decimal(cost))


@pytest.mark.parametrize(
    ("answers", "want", "words"),
    [
        ([found("8 slots", 1, 29)] * 3, True, "the same winner every time"),
        ([found("8 slots", 1, 29), found("Q8_0", 1, 29), found("8 slots", 1, 29)], True, "differ, at the same cost"),
        ([found("8 slots", 1, 29), found("8 slots", 2, 58), found("8 slots", 1, 29)], False, "29 and 58"),
        (
            [found("8 slots", 1, 29), Answer("Infeasible"), found("8 slots", 1, 29)],
            False,
            "1 of 3 searches ended without",
        ),
    ],
)
def test_the_same_winner_or_the_same_cost_is_agreement(answers: list[Answer], want: bool, words: str) -> None:
    agreed, how = agreement(answers)
    assert agreed is want
    assert words in how


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_an_answer_is_as_sure_as_the_settings_ask_for_and_says_when_they_were_lowered(confidence: float) -> None:
    space = problem([SMALL, LARGE], measurement=Measurement(confidence=confidence, sentinel_every=0))
    decision, results = live(space, World({SMALL: 0.5, LARGE: 6.0}))
    document = to_document(space, decision, results, findings={}, flags=(), generated_at="", version="0")
    answer = Answer.from_document(document, 1.0)
    assert (answer.kind, answer.confidence, answer.trials) == ("Found", confidence, len(results))
    assert f"{100 * confidence:.3g} % sure" in answer.proved[0]
    assert any("confidence was lowered" in said for said in answer.not_proved) is (confidence < 0.95)
    assert table([answer]).row_count == 1


def test_after_a_confirmation_that_failed_an_answer_must_be_surer_and_says_so() -> None:
    other = candidate(slots=16)
    world = World({SMALL: 0.5, LARGE: 6.0, other: 6.0})
    failed: list[object] = []

    def first_confirmation_fails(trial):
        if trial.seed_block == 1 and (not failed or trial.candidate in failed):
            failed.append(trial.candidate)
            return Outcome.FAIL
        return None

    world.verdicts = first_confirmation_fails
    decision, _ = live(problem([SMALL, LARGE, other]), world)
    assert decision.confidence == pytest.approx(0.975)
    assert any("97.5 % sure" in said for said in decision.proved)


def test_a_search_without_a_winner_has_no_cost() -> None:
    space = problem([SMALL])
    decision, results = live(space, World({SMALL: 0.1}))
    document = to_document(space, decision, results, findings={}, flags=(), generated_at="", version="0")
    assert Answer.from_document(document, 1.0).monthly_cost is None
