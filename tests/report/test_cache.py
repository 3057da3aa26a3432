"""What the prompt cache did is one line of numbers, and a finding where it did less than it could."""

from __future__ import annotations

from dataclasses import replace

from slotune.load.cache_facts import CacheFacts
from slotune.report.cache import cache_lines
from slotune.report.document import to_document
from slotune.report.measured import how_measured
from slotune.report.text import bench_text, ending_text, plain
from slotune.search.decision import Decision
from slotune.search.trial import TrialResult
from tests.report.samples import Sample, worked_example

GOOD = CacheFacts(
    theoretical_reuse=0.64,
    measured_reuse=0.61,
    slots_reuse=0.64,
    prefixes=4,
    cold_ttft_s=0.31,
    warm_ttft_s=0.09,
    canaries=12,
)
NUMBERS = "cold 0.31 s / warm 90 ms alone on the server, reuse 61 % of 64 % possible"


def winner(sample: Sample, cache: CacheFacts | None) -> tuple[Decision, TrialResult]:
    """The sample's decision, with this known of the winner's cache."""
    choice = sample.decision.choice
    assert choice is not None
    result = replace(choice.result, cache=cache)
    return replace(sample.decision, choice=replace(choice, result=result)), result


def test_cold_warm_and_reuse_stand_on_one_line() -> None:
    sample = worked_example()
    _, result = winner(sample, GOOD)
    assert cache_lines(sample.problem, result) == [
        NUMBERS,
        "12 of 12 canary prompts answered from their own context.",
    ]


def test_a_cache_that_serves_too_little_has_its_finding_below() -> None:
    sample = worked_example()
    decision, result = winner(sample, replace(GOOD, measured_reuse=0.2))
    lines = cache_lines(sample.problem, result)
    assert lines[1].startswith("The prompt cache served 20 % of prompt tokens, 64 % were possible: ")
    document = to_document(sample.problem, decision, [result], flags=())
    [trial] = [trial for trial in document["trials"] if trial["key"] == sample.problem.key(result.trial)]
    assert trial["cache"]["finding"] in {"CacheWithoutEffect", "PromptCacheOff"}
    assert trial["cache"]["measured_reuse"] == 0.2


def test_the_settings_of_a_foreign_server_are_not_guessed_at() -> None:
    sample = worked_example()
    _, result = winner(sample, replace(GOOD, measured_reuse=0.2))
    outside = replace(sample.problem, models={})
    assert cache_lines(outside, result)[1].endswith("64 % were possible: why is not known from outside.")


def test_nothing_is_said_of_a_cache_that_nobody_looked_at() -> None:
    sample = worked_example()
    decision, result = winner(sample, None)
    assert cache_lines(sample.problem, result) == []
    assert "Prompt cache" not in plain(ending_text(sample.problem, decision, flags=(), findings={}, width=100))
    assert "Prompt cache" not in dict(how_measured(sample.problem, decision, [result], {}))


def test_a_cache_that_is_off_has_a_cold_number_alone() -> None:
    sample = worked_example()
    _, result = winner(sample, CacheFacts(theoretical_reuse=0.64, measured_reuse=0.0, cold_ttft_s=0.31))
    assert cache_lines(sample.problem, result)[0] == "cold 0.31 s alone on the server, reuse 0 % of 64 % possible"


def test_terminal_and_page_say_the_same() -> None:
    sample = worked_example()
    decision, result = winner(sample, GOOD)
    ending = plain(ending_text(sample.problem, decision, flags=(), findings={}, width=140))
    bench = plain(bench_text(sample.problem, result, findings={}, width=140))
    assert NUMBERS in ending
    assert NUMBERS in bench
    facts = dict(how_measured(sample.problem, decision, [result], {}))
    assert facts["Prompt cache"].startswith("Cold 0.31 s / warm 90 ms")
