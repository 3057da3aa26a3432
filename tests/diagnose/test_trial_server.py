"""A trial's server is judged by its log as any other is: one cause, one identifier, and no alarm that holds for users
only."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from slotune.diagnose.catalogue import ALL_RULES, ENTRIES
from slotune.diagnose.checkup import check_up
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.failed_trials import FAILURES, entry_of
from slotune.diagnose.failure_entries import OF_FAILURES
from slotune.diagnose.findings import TABLE, findings, first_cause
from slotune.diagnose.hints import hints
from slotune.diagnose.symptoms import PodFacts, Symptoms
from slotune.diagnose.trial_server import NOT_OF_TRIALS, RULES, notice
from slotune.gathering.log_file import read_log
from slotune.llama.effective import check_log
from slotune.llama.failures import FailureClass
from slotune.llama.log_story import LogStory
from slotune.sandbox.outcomes import failed, mismatched, not_measured
from slotune.sandbox.server_log import read_story, story_of
from slotune.search.noticed import Noticed
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult
from slotune.tuning.finding_status import findings_status, noticed_of
from slotune.verdict.verdicts import Outcome
from tests.diagnose.test_findings import PROMISE, QUEUE, UNIQUE, parts, result

LOGS = sorted(path for path in (Path(__file__).parents[1] / "llama" / "logs").iterdir() if path.suffix != ".txt")
GIB = 2**30
PASSED = result(parts(0.1, 0.4), p95=0.6, outcome=Outcome.PASS)


def log(name: str) -> LogStory:
    story = read_story(next(path for path in LOGS if path.name == name))
    assert story is not None
    return story


def noticed(story: LogStory | None, of: TrialResult = PASSED, **more: object) -> list[str]:
    usual: dict[str, object] = {"is_gpu": True, "is_generated": True}
    return [one.id for one in notice(of, story, **(usual | more))]  # type: ignore[arg-type]  # a test's shorthand


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_log_and_a_trial_with_that_log_name_an_end_alike(path: Path) -> None:
    [story] = read_log(path)
    diagnosed = check_up(Symptoms(path.name, story), ALL_RULES).findings
    if story.failure is None:
        assert not {one.id for one in diagnosed} & {entry.id for entry in OF_FAILURES.values()}
        return
    ended = failed(not_measured(PASSED.trial), story.failure)
    ended = replace(ended, noticed=notice(ended, story, is_gpu=True, is_generated=True))
    assert [one.id for one in findings(ended, PROMISE, UNIQUE)] == [one.id for one in diagnosed]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("cuda_layers_on_host.log", "SLT003"),
        ("cuda_kernel_fallback.log", "SLT010"),
        ("cuda_no_driver.log", "SLT001"),
        ("served_four.log", "SLT031"),
        ("served_five.log", "SLT080"),
    ],
)
def test_what_only_a_log_says_is_found_of_a_trial_as_of_the_log(name: str, wanted: str) -> None:
    story = log(name)
    [said] = [one for one in notice(PASSED, story, is_gpu=True, is_generated=True) if one.id == wanted]
    [same] = [one for one in check_up(Symptoms(name, story), ALL_RULES).findings if one.id == wanted]
    assert (said.sentence, said.severity, said.evidence) == (same.sentence, same.severity, str(same.evidence[0]))
    found = findings(replace(PASSED, noticed=(said,)), PROMISE, UNIQUE)
    assert [(one.id, one.sentence, one.evidence) for one in found] == [(wanted, same.sentence, same.evidence[:1])]


@pytest.mark.parametrize(
    "name", ["all_defaults.log", "log_level_three.log", "unified_pool.log", "context_capped.log", "split_quantized.log"]
)
def test_a_healthy_server_of_a_trial_gets_no_finding(name: str) -> None:
    for is_gpu in (False, True):
        flags = ("-np", "2", "-ngl", "all", "-fit", "off", "-lv", "4")
        assert noticed(log(name), is_gpu=is_gpu, flags=flags) in ([], ["SLT001"] if is_gpu else [])


def test_a_trial_on_cpus_is_not_accused_of_using_no_gpu() -> None:
    story = log("gpu_build_without_gpu.log")
    assert noticed(story, is_gpu=False, flags=("-ngl", "all")) == []
    assert "SLT001" in noticed(story, flags=("-ngl", "all"))


def test_limits_of_the_pod_are_held_against_threads_and_the_host_cache() -> None:
    args = ("-t", "8", "-tb", "8", "-cram", "8192", "-lv", "4", "-ngl", "0")
    pod = PodFacts("p", args=("/app/llama-server", *args), cpu_limit=2.0, memory_limit_bytes=4 * GIB)
    assert noticed(None, is_gpu=False, pod=pod) == ["SLT033", "SLT060"]  # 8 GiB are beyond 4, whatever the model takes
    roomy = replace(pod, memory_limit_bytes=16 * GIB)
    assert noticed(None, is_gpu=False, pod=roomy) == ["SLT060"]  # nobody knows what the model takes: nothing is guessed
    assert noticed(log("all_defaults.log"), is_gpu=False, pod=replace(pod, cpu_limit=8.0)) == ["SLT033"]
    roomy = replace(pod, cpu_limit=8.0, memory_limit_bytes=64 * GIB)
    assert noticed(log("all_defaults.log"), is_gpu=False, pod=roomy) == []


def test_guesses_about_made_up_prompts_are_no_certainty() -> None:
    text = (LOGS[0].parent / "served_three.log").read_text()
    head = "0.01.609.290 I slot print_timing: id  1 | task 1 | "
    # Beside every answer that the log has, as such a server says it.
    lines = re.sub(
        r"^(.*)(?=total time)",
        rf"{head}draft acceptance = 0.02000 (    2 accepted /   100 generated), mean len =  1.02\n\1",
        text,
        flags=re.MULTILINE,
    )
    story = story_of([lines])
    assert story is not None
    assert story.requests is not None
    assert story.requests.drafted_tokens, "the log is not read as it was meant"
    sure = [notice(PASSED, story, is_gpu=True, is_generated=made_up) for made_up in (True, False)]
    assert [one.confidence for each in sure for one in each if one.id == "SLT103"] == ["Possible", "Likely"]


def test_an_invalid_measurement_says_nothing_about_the_server_but_why_it_was_another() -> None:
    story = log("context_capped.log")
    invalid = result(outcome=Outcome.INVALID)
    assert noticed(log("served_five.log"), invalid) == []
    differs = replace(invalid, verdict=replace(invalid.verdict, code="ConfigurationMismatch"))
    assert noticed(story, differs) == ["SLT030"]
    assert noticed(story) == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("cuda_no_driver.log", "SLT001"),
        ("cuda_unused.log", "SLT001"),
        ("cuda_kernel_fallback.log", "SLT010"),
        ("cuda_layers_on_host.log", "SLT002"),
    ],
)
def test_what_a_server_fell_back_from_is_what_its_log_is_told_by(name: str, wanted: str) -> None:
    story = log(name)
    asked = replace(PASSED.trial.candidate, gpu_layers="all")
    differing = [one for one in check_log(asked, story.facts, gpu_expected=True) if one.silent_fallback]
    ended = mismatched(not_measured(replace(PASSED.trial, candidate=asked)), differing)
    assert ended.failure is FailureClass.CPU_FALLBACK
    assert entry_of(ended.failure, ended.failure_knob, ended.verdict.reason).id == wanted
    # A trial states where layers go, so what -fit would have chosen by itself is found under the arguments' entry.
    flags = ("-ngl", "all", "-fit", "off")
    assert wanted in {one.id for one in check_up(Symptoms(name, story, flags=flags), ALL_RULES).findings}
    assert wanted not in noticed(story, ended, flags=flags), "told once"


def test_what_was_measured_goes_before_what_was_noticed_and_wins() -> None:
    beside = Noticed("SLT080", "Warning", "Certain", "the log is one of -lv 5", "log:3  7 lines at debug level")
    twice = Noticed("SLT050", "Warning", "Certain", "another sentence", "log:4  x")
    found = findings(replace(result(QUEUE), noticed=(beside, twice)), PROMISE, UNIQUE)
    assert [one.id for one in found] == ["SLT050", "SLT080"]
    assert found[0].sentence == "queue 2.4 s of 2.8: 8 slots, all busy"
    assert found[1].evidence == (Evidence(Source.LOG, "7 lines at debug level", 3),)


REFUSED = Noticed("SLT031", "Warning", "Certain", "5 requests were refused", "log:9  request (900 tokens) exceeds")


def test_requests_that_were_refused_explain_a_fail_before_any_wait() -> None:
    late = replace(result(QUEUE), noticed=(REFUSED,))
    cause = first_cause(late, PROMISE, UNIQUE)
    assert cause is not None
    assert (cause.id, cause.knobs[0]) == ("SLT031", "contextSizePerSlot")


def test_requests_that_were_refused_are_a_hint_for_more_context() -> None:
    missed = replace(result(parts(0.1, 0.4), p95=0.6), noticed=(REFUSED,))
    tried = missed.trial.candidate
    more, less = (replace(tried, context_per_slot=size) for size in (16384, 4096))
    problem = Problem("p", PROMISE, UNIQUE, {}, {}, (tried, more, less), tried)
    order = hints(problem, [missed])
    assert order.get(more, 0) < order.get(less, 0)
    assert hints(problem, [replace(missed, noticed=())]).get(less, 0) <= order[less]


def test_what_was_noticed_comes_back_from_a_status_and_what_was_measured_does_not() -> None:
    told = replace(result(QUEUE), noticed=(REFUSED,))
    status = findings_status(findings(told, PROMISE, UNIQUE))
    assert [one.id for one in status] == ["SLT031", "SLT050"]
    assert noticed_of(status, None, None, "") == (REFUSED,)


def test_an_entry_of_another_version_is_left_out() -> None:
    assert findings(replace(PASSED, noticed=(replace(REFUSED, id="SLT999"),)), PROMISE, UNIQUE) == ()


def test_no_prompt_is_noticed_in_a_debug_log() -> None:
    """Every line that could hold what a user wrote does so here."""
    text = log_text = (Path(__file__).parents[1] / "llama" / "logs" / "served_five.log").read_text()
    text += "\n".join(f'srv  log_server_r: request:  {{"prompt": "my diary {at}"}} done' for at in range(50)) + "\n"
    for story in (story_of([text]), story_of([text.replace("request:", "exceeds request:"), log_text])):
        said = notice(PASSED, story, is_gpu=True, is_generated=True)
        assert said
        assert "diary" not in json.dumps([one.sentence + one.evidence for one in said])


def test_every_rule_that_is_left_out_is_one_and_the_table_finds_what_it_measures() -> None:
    rules = {rule.id for rule in ALL_RULES}
    assert set(NOT_OF_TRIALS) <= rules
    assert {rule.id for rule in RULES} == rules - set(NOT_OF_TRIALS)
    assert not {row.entry.id for row in TABLE} & {rule.id for rule in RULES}, "one finder for each identifier"
    assert all(entry.id in ENTRIES for entry in FAILURES.values())
