"""How it was measured is said, and so is every setting that gives less evidence than the defaults."""

from __future__ import annotations

from dataclasses import replace

from slotune.load.demand import Prompt
from slotune.report.measured import headroom_sentence, how_measured, lowered_in_short, lowered_settings, warnings_of
from slotune.search.problem import Measurement
from tests.report.samples import demo_like, infeasible, worked_example


def test_the_defaults_are_not_called_lowered() -> None:
    assert lowered_settings(Measurement()) == ()
    assert lowered_in_short(Measurement()) == ""
    assert lowered_settings(Measurement(0.99, 400, 10, 100)) == ()


def test_a_demo_says_what_was_lowered_and_what_that_means() -> None:
    sentences = lowered_settings(demo_like().problem.measurement)
    assert sentences[0] == (
        "Confidence was lowered to 80 % (a production decision deserves 95 %): of configurations that just miss "
        "the promise, up to 20 % would pass by luck."
    )
    assert len(sentences) == 6
    assert lowered_in_short(demo_like().problem.measurement) == (
        "Lowered for this run: confidence 80 % (else 95 %), 2 runs (else 5), 30 requests a run (else 200), "
        "6 to warm up (else 50), no look at whether the machine drifts."
    )
    assert lowered_in_short(Measurement(drift_limit=0.3)) == (
        "Lowered for this run: a drift of 30 % allowed (else 3 %)."
    )


def test_the_facts_name_traffic_requests_machine_and_engine() -> None:
    sample = worked_example()
    facts = dict(how_measured(sample.problem, sample.decision, sample.results, {}))
    assert facts["Engine"] == "llama.cpp, build b11549-8f2c1d0."
    assert facts["Machine"] == "a100-40g at $2 an hour, 40 GiB."
    assert facts["Traffic"].startswith("Open loop: 6/s at the peak, arriving at random (Poisson)")
    assert facts["Requests"].startswith("5 runs of 200 requests for each trial")
    assert "fresh seeds" in facts["Seeds"]


def test_the_caller_knows_better_what_the_engine_is() -> None:
    sample = worked_example()
    facts = dict(how_measured(sample.problem, sample.decision, sample.results, {"Engine": "embedded"}))
    assert facts["Engine"] == "embedded"


def test_a_confirmation_that_did_not_happen_is_not_claimed() -> None:
    sample = infeasible()
    facts = dict(how_measured(sample.problem, sample.decision, sample.results, {}))
    assert "fresh" not in facts["Seeds"]


def test_recorded_prompts_are_counted_as_such_and_never_quoted() -> None:
    sample = worked_example()
    demand = replace(sample.problem.demand, synthetic=None, prompts=(Prompt("my private prompt"),), ignore_eos=False)
    problem = replace(sample.problem, demand=demand)
    facts = dict(how_measured(problem, sample.decision, sample.results, {}))
    assert "recorded prompts" in facts["Traffic"]
    assert "at most 250 out" in facts["Traffic"]
    assert "private" not in str(facts)


def test_a_warning_is_said_once_with_its_count() -> None:
    sample = worked_example()
    noisy = [replace(r, warnings=("clocks were throttled",)) for r in sample.results[:3]]
    assert warnings_of([*noisy, replace(sample.results[3], warnings=("a",))]) == (
        "clocks were throttled (3 trials)",
        "a",
    )


def test_headroom_is_claimed_only_when_it_was_shown() -> None:
    decision = worked_example().decision
    assert decision.choice is not None
    assert headroom_sentence(decision) == ""
    roomy = replace(decision, choice=replace(decision.choice, headroom=1.5))
    assert headroom_sentence(roomy) == "The winner kept the promise at 1.5 times the rate that it is owed."
    assert headroom_sentence(infeasible().decision) == ""


def test_the_memory_of_the_winner_is_the_one_that_its_log_states() -> None:
    sample = worked_example()
    facts = dict(how_measured(sample.problem, sample.decision, sample.results, {}))
    assert facts["Memory"] == "18 GiB for the winner, as its log states it."
