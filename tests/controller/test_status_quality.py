"""How answers compare is in the status of a LlamaDeployment, with what is not known left out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slotune.api.v1alpha1.candidate import QualityResult
from slotune.controller.events import EventNote, trial_ended
from slotune.controller.status_answer import baseline_configuration, recommendation_of, rejected_of
from slotune.controller.status_progress import RunningTrial, progress_of, trial_label
from slotune.sandbox.protocol import Progress
from slotune.search.pairs import comparison_candidate, pair_of
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict
from tests.report.compared import DIFFERS, HOLDS, TODAY, answers_compared
from tests.report.samples import worked_example
from tests.search.worlds import GPU, QUALITY, World, candidate, live, problem


def test_the_recommendation_says_how_its_answers_compare_and_what_was_asked_for():
    sample = answers_compared()
    said = recommendation_of(sample.problem, sample.decision, args=[])
    assert said is not None
    assert said.quality == QualityResult(
        preset="Balanced",
        held=True,
        mean_kld="0.0031",
        mean_kld_upper="0.0031",
        top1_percent="100",
        top1_percent_lower="99",
    )


def test_the_references_own_answers_hold_by_definition():
    sample = answers_compared()
    said = baseline_configuration(sample.problem, sample.decision, sample.results)
    assert said.quality == QualityResult(preset="Balanced", held=True)


def test_a_baseline_that_answers_too_differently_is_told_while_the_search_goes_on():
    asked = problem([DIFFERS, TODAY], quality=QUALITY, context="0123456789abcdef")
    _, results = live(asked, World({DIFFERS: 6.0, TODAY: 2.0}, divergences={pair_of(DIFFERS): 0.1873}))
    compared = next(n for n, r in enumerate(results) if r.quality is not None and r.trial.candidate.variant == "Q4_0")
    before = baseline_configuration(asked, None, results[:compared]).quality
    after = baseline_configuration(asked, None, results[: compared + 1]).quality
    assert before == QualityResult(preset="Balanced")
    assert after is not None
    assert (after.held, after.mean_kld) == (False, "0.187")


def test_where_nobody_looks_there_is_no_quality():
    sample = worked_example()
    said = recommendation_of(sample.problem, sample.decision, args=[])
    assert said is not None
    assert said.quality is None


def test_pairs_that_differ_too_much_are_counted_under_their_reason():
    sample = answers_compared()
    counted = {one.code: one.count for one in rejected_of(sample.problem, sample.decision)}
    assert counted["QualityTooLow"] == 1
    assert counted["QualityUndecided"] == 1


@pytest.mark.parametrize(
    ("purpose", "variant", "want"),
    [
        (Purpose.REFERENCE, "F16", "recording answers of F16 with KV cache f16 as the reference"),
        (Purpose.QUALITY, "Q8_0", "comparing answers of Q8_0 with KV cache f16"),
    ],
)
def test_a_look_at_answers_is_told_by_its_pair(purpose, variant, want):
    asked = answers_compared().problem
    one = comparison_candidate(asked, pair_of(candidate(variant)), GPU)
    assert trial_label(asked, Trial(one, 0.0, purpose=purpose)) == want


def test_half_its_load_is_told_as_such():
    asked = answers_compared().problem
    assert trial_label(asked, Trial(HOLDS, 1.5, 2, purpose=Purpose.PARTIAL)).endswith("at 1.5/s, half its load")


def test_a_comparison_counts_steps_and_not_requests():
    asked = answers_compared().problem
    one = comparison_candidate(asked, pair_of(HOLDS), GPU)
    comparing = Progress("comparing", 0, 0, 512, 1024, 0, 0, 30.0, 30.0)
    running = RunningTrial("chat-1", Trial(one, 0.0, purpose=Purpose.QUALITY), comparing)
    said = progress_of(asked, (), (running,), now=datetime(2026, 1, 31, 12, tzinfo=UTC))
    assert "512 of 1,024 steps" in str(said)


def answers_ended(purpose: Purpose, verdict: Verdict) -> EventNote | None:
    one = comparison_candidate(answers_compared().problem, pair_of(HOLDS), GPU)
    return trial_ended("chat-1", TrialResult(Trial(one, 0.0, purpose=purpose), verdict, 1.0), "Q8_0 with KV cache f16")


def test_a_reference_that_was_recorded_is_no_event_and_a_comparison_is_one():
    assert answers_ended(Purpose.REFERENCE, Verdict(Outcome.PASS, "16 steps", "ReferenceRecorded", 0.95)) is None
    note = answers_ended(Purpose.QUALITY, Verdict(Outcome.FAIL, "mean divergence 0.2 nats", "QualityTooLow", 0.95))
    assert note is not None
    assert (note.type, "0.2 nats" in note.note) == ("Normal", True)


def test_a_reference_that_cannot_be_recorded_warns_with_what_follows_and_a_cure():
    note = answers_ended(Purpose.REFERENCE, Verdict(Outcome.FAIL, "5 GB did not fit", "OutOfMemoryWeights", 0.95))
    assert note is not None
    assert note.type == "Warning"
    for words in ("no answers can be compared", "set aside", "Mark a model that runs here", "5 GB did not fit"):
        assert words in note.note
