"""The decision table: a measurement in, the cause and the setting to try out. The order is locked."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from slotune.diagnose import catalogue
from slotune.diagnose.evidence import LONGEST, Source
from slotune.diagnose.failed_trials import FAILURES
from slotune.diagnose.failure_entries import WITHDRAWN
from slotune.diagnose.finding import Severity
from slotune.diagnose.findings import ENTRIES, TABLE, explain_result, findings, trial_findings
from slotune.diagnose.invalid_entries import INVALID
from slotune.diagnose.invalid_entries import WITHDRAWN as WITHDRAWN_FAULTS
from slotune.diagnose.roofline import usual_step_s
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.llama.model_facts import ModelFacts
from slotune.load.cache_facts import CacheFacts
from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.gates import GATES
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.search.problem import Hardware, Problem
from slotune.search.trial import Trial, TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict

PROMISE = Promise(ttft_s=1.0, tokens_per_second_per_user=30)
UNIQUE = Demand(6.0, 250, synthetic=SyntheticPrompts(4000), input_tokens_mean=4000, input_tokens_p95=4000)
SHARED = replace(UNIQUE, reusable_tokens=3000)
IDLE = IdleProbe(overhead_s=0.01, prefill_tokens_per_s=10_000, decode_step_s=0.01)


def result(
    parts: Attribution | None = None,
    *,
    p95: float | None = 2.8,
    speed: float = 98,
    slots: int = 8,
    outcome: Outcome = Outcome.FAIL,
    gap: float | None = None,
    probe: IdleProbe = IDLE,
    slow: Attribution | None = None,
    failure: FailureClass | None = None,
    **settings: object,
) -> TrialResult:
    """A trial of which only what matters is stated."""
    candidate = Candidate("BF16", "gpu", slots, 8192, **settings)  # type: ignore[arg-type]  # a test's shorthand
    verdict = Verdict(
        outcome, "the verdict's own reason", "Said", 0.95, 200, 50, ttft_p95_s=p95, tokens_per_second_p5=speed
    )
    return TrialResult(
        trial=Trial(candidate, 1.2),
        verdict=verdict,
        gpu_seconds=60,
        failure=failure,
        failure_knob="contextSizePerSlot" if failure else None,
        probe=probe,
        latencies=Latencies(tokens_per_second_p50=1.2 * speed, longest_gap_p99_s=gap),
        attribution=parts,
        slowest=slow,
    )


def parts(queue: float = 0.0, prefill: float = 0.0, contention: float = 0.0, **more: float) -> Attribution:
    return Attribution(queue, prefill, contention, 0.01, **more)


def cached(served: float, *, cache_prompt: bool = True, **seen: object) -> TrialResult:
    """A trial in time, whose cache could have served 60 % and the slots alone as much."""
    facts = {"theoretical_reuse": 0.6, "slots_reuse": 0.6, "prefixes": 4, "prefix_share": 0.7} | seen
    cache = CacheFacts(measured_reuse=served, **facts)  # type: ignore[arg-type]  # a test's shorthand
    return replace(result(parts(0.1, 0.4), p95=0.6, cache_prompt=cache_prompt), cache=cache)


QUEUE = parts(2.4, 0.4, busy_slots=7.9, cached_share=0.0)

CASES = {
    "all slots busy while requests queue and users are fast": (
        result(QUEUE),
        UNIQUE,
        "TooFewSlots",
        "queue 2.4 s of 2.8: 8 slots, all busy",
    ),
    "the queue of the slowest counts, not that of the mean": (
        result(parts(0.1, 0.4, cached_share=0.0), slow=parts(2.4, 0.4)),
        UNIQUE,
        "TooFewSlots",
        "queue 2.4 s of 2.8: 8 slots",
    ),
    "a batch that must finish": (
        result(QUEUE, extra_args=("--no-cont-batching",)),
        UNIQUE,
        "StaticBatch",
        "queue 2.4 s of 2.8: a batch must finish before a new request gets in",
    ),
    "slots idle while requests queue": (
        result(replace(QUEUE, busy_slots=2.0)),
        UNIQUE,
        "SlotsIdleWhileQueueing",
        "queue 2.4 s of 2.8, though only 2.0 of 8 slots are busy: the server or a proxy serializes",
    ),
    "a queue although users are barely fast enough": (
        result(QUEUE, speed=31),
        UNIQUE,
        "Saturated",
        (
            "queue 2.4 s of 2.8, and 31 tok/s per user leave no room for more slots: "
            "a request takes too much work for 1.2/s"
        ),
    ),
    "a shared prompt read again and again": (
        result(parts(0.1, 0.7, 0.4, cached_share=0.1), p95=1.2),
        SHARED,
        "PromptComputedAgain",
        "reading prompts 1.1 s of 1.2: 75 % of prompt tokens are shared, 10 % came from the cache",
    ),
    "a shared prompt with the cache off": (
        result(parts(0.1, 1.1, cached_share=0.0), p95=1.2, cache_prompt=False),
        SHARED,
        "PromptComputedAgain",
        (
            "reading prompts 1.1 s of 1.2: 75 % of prompt tokens are shared, 0 % came from the cache, "
            "the prompt cache is off"
        ),
    ),
    "a prompt with nothing to share": (
        result(parts(0.1, 1.1), p95=1.2),
        UNIQUE,
        "PrefillBound",
        "reading the prompt 1.1 s of 1.2, and no shared prefix is left to save",
    ),
    "prompts that wait for each other": (
        result(parts(0.3, 0.4, 0.6), p95=1.3),
        UNIQUE,
        "Contention",
        "waiting for other prompts in the batch 0.60 s of 1.3",
    ),
    "a prompt that alone takes too long": (
        result(QUEUE, probe=replace(IDLE, prefill_tokens_per_s=2500)),
        UNIQUE,
        "PromptAloneTooSlow",
        "reading 4,000 tokens alone takes 1.6 s here (2,500 tokens/s), 1.0 s is owed",
    ),
    "a single user who is too slow": (
        result(parts(), p95=0.5, speed=19, probe=replace(IDLE, decode_step_s=0.05)),
        UNIQUE,
        "OneUserTooSlow",
        "one user alone gets 20 tok/s (50 ms a token), 30 are owed",
    ),
    "too many users in one step": (
        result(parts(busy_slots=15.0), p95=0.5, speed=24, slots=16),
        UNIQUE,
        "BytesPerStep",
        "24 tok/s per user with 16 slots (100 alone), 30 are owed",
    ),
    "few users scattered over many slots": (
        result(parts(busy_slots=8.0), p95=0.5, speed=24, slots=16),
        UNIQUE,
        "ScatteredSlots",
        (
            "24 tok/s per user with 8.0 of 16 slots busy: with a KV stream per slot the weights are read about "
            "4.5 times a step"
        ),
    ),
    "long pauses beside good times": (
        result(parts(0.1, 0.4), p95=0.6, gap=0.4),
        UNIQUE,
        "NeighboursStall",
        "answers pause for up to 0.40 s while a neighbour's prompt is read, 2,048 tokens a step",
    ),
    "a cache that is on and hits nothing": (
        result(parts(0.1, 0.4, cached_share=0.2), p95=0.6),
        SHARED,
        "CacheWithoutEffect",
        "75 % of prompt tokens are shared, 20 % came from the cache",
    ),
    "more cached than there is to share": (
        result(parts(0.1, 0.1, cached_share=0.6), p95=0.6),
        UNIQUE,
        "CachedTooMuch",
        (
            "60 % of prompt tokens came from a cache, 0 % are shared: a foreign prompt may have been restored "
            "(ggml-org/llama.cpp#27148)"
        ),
    ),
    "a cache that was looked at and is off": (
        cached(0.0, cache_prompt=False),
        SHARED,
        "PromptCacheOff",
        "the prompt cache served 0 % of prompt tokens, 60 % were possible: it is switched off",
    ),
    "a template that changes what is shared": (
        cached(0.0, template_keeps_prefix=False),
        SHARED,
        "TemplateChangesPrefix",
        (
            "the prompt cache served 0 % of prompt tokens, 60 % were possible: the chat template makes different "
            "beginnings of what prompts share"
        ),
    ),
    "beginnings too short for a slot to be chosen by them": (
        cached(0.01, theoretical_reuse=0.06, slots_reuse=0.06, prefix_share=0.06),
        SHARED,
        "SlotSimilarity",
        (
            "the prompt cache served 1 % of prompt tokens, 6 % were possible: a prompt shares 6 % of its length, and a "
            "slot is chosen for what it holds from 10 % on (--slot-prompt-similarity)"
        ),
    ),
    "more prefixes than slots and no host cache": (
        cached(0.2, slots_reuse=0.25, prefixes=20),
        SHARED,
        "SlotsFewerThanPrefixes",
        (
            "the prompt cache served 20 % of prompt tokens, 60 % were possible: 20 prefixes take turns in 8 slots, "
            "which alone could serve 25 %, and there is no host cache"
        ),
    ),
}


@pytest.mark.parametrize(("measured", "demand", "code", "sentence"), CASES.values(), ids=CASES.keys())
def test_the_first_finding(measured: TrialResult, demand: Demand, code: str, sentence: str) -> None:
    first = findings(measured, PROMISE, demand)[0]
    assert (first.code, first.sentence) == (code, sentence)
    assert first.knobs
    [seen] = first.evidence
    assert seen.source is Source.TRIAL
    assert 0 < len(seen.text) <= LONGEST


def test_every_row_of_the_table_has_a_case() -> None:
    assert {row.entry.code for row in TABLE} - {code for _, _, code, _ in CASES.values()} == {
        "AboveRoofline",
        # these need the model's facts or have no setting to try: tests/diagnose/test_cache.py
        "SlidingWindow",
        "CacheRAMChurn",
        "CanaryUnsteady",
    }


def test_the_order_of_the_table() -> None:
    assert [row.entry.code for row in TABLE] == [
        "PromptAloneTooSlow",
        "OneUserTooSlow",
        "StaticBatch",
        "SlotsIdleWhileQueueing",
        "TooFewSlots",
        "Saturated",
        "PromptComputedAgain",
        "PrefillBound",
        "Contention",
        "ScatteredSlots",
        "BytesPerStep",
        "NeighboursStall",
        "PromptCacheOff",
        "TemplateChangesPrefix",
        "SlotSimilarity",
        "SlidingWindow",
        "SlotsFewerThanPrefixes",
        "CacheRAMChurn",
        "CacheWithoutEffect",
        "CachedTooMuch",
        "CanaryUnsteady",
        "AboveRoofline",
    ]


def test_nobody_is_told_to_quantize_weights_while_requests_stand_in_a_queue() -> None:
    assert "variant" not in findings(result(QUEUE), PROMISE, UNIQUE)[0].knobs


def alone_at(step_s: float) -> TrialResult:
    """A server on which one user alone waits so many seconds for a token."""
    measured = result(parts(), p95=0.5)
    assert measured.probe is not None
    return replace(measured, probe=replace(measured.probe, decode_step_s=step_s))


def test_a_gpu_far_below_its_roofline_is_suspected() -> None:
    found = findings(alone_at(0.07), PROMISE, UNIQUE, roofline_step_s=0.004)
    [told] = [one for one in found if one.code == "AboveRoofline"]
    assert "70 ms alone, memory bandwidth allows 4 ms" in told.sentence


def test_a_trial_and_a_server_are_held_to_one_bound() -> None:
    floor = 0.0024  # an 8B of 4.9 GB on an A100, which takes 7 ms a token in good health
    assert usual_step_s(floor, 32) > 0.007
    assert findings(result(parts(), p95=0.5), PROMISE, UNIQUE, roofline_step_s=floor) == ()
    for step_s in (0.99 * usual_step_s(floor, None), 1.01 * usual_step_s(floor, None)):
        codes = [one.code for one in findings(alone_at(step_s), PROMISE, UNIQUE, roofline_step_s=floor)]
        assert ("AboveRoofline" in codes) is (step_s > usual_step_s(floor, None))


def test_a_server_that_could_not_run_has_one_finding_and_its_setting() -> None:
    [found] = findings(result(failure=FailureClass.OUT_OF_MEMORY_KV), PROMISE, UNIQUE)
    assert (found.code, found.knobs) == ("OutOfMemoryKV", ("contextSizePerSlot",))
    assert (found.id, found.severity) == ("SLT204", Severity.CRITICAL)


def test_an_invalid_measurement_says_nothing_about_the_candidate() -> None:
    [found] = findings(result(QUEUE, outcome=Outcome.INVALID), PROMISE, UNIQUE)
    assert (found.code, found.sentence, found.knobs) == ("Said", "the verdict's own reason", ())
    assert found.id == "SLT300"  # no code of this version


def test_a_server_that_is_not_as_it_was_asked_to_be_has_its_own_entry() -> None:
    invalid = result(outcome=Outcome.INVALID)
    differs = replace(invalid, verdict=replace(invalid.verdict, code="ConfigurationMismatch"))
    assert [one.id for one in findings(differs, PROMISE, UNIQUE)] == ["SLT209"]


def test_a_promise_of_ttft_alone_has_speed_to_spare() -> None:
    assert findings(result(QUEUE, speed=5), Promise(ttft_s=1.0), UNIQUE)[0].code == "TooFewSlots"


def test_without_a_probe_nothing_is_said_about_an_idle_server() -> None:
    unprobed = replace(result(QUEUE), probe=None)
    assert findings(unprobed, PROMISE, UNIQUE, roofline_step_s=0.001)[0].code == "TooFewSlots"


def test_no_p95_at_all_is_late() -> None:
    assert findings(result(QUEUE, p95=None), PROMISE, UNIQUE)[0].code == "TooFewSlots"


def test_a_pass_needs_no_explanation() -> None:
    assert explain_result(result(parts(0.1, 0.4), p95=0.6, gap=0.5, outcome=Outcome.PASS), PROMISE, UNIQUE) == ""


def test_what_was_noticed_beside_does_not_explain_a_fail() -> None:
    measured = result(parts(0.1, 0.4), p95=0.9, gap=0.4)
    assert [one.code for one in findings(measured, PROMISE, UNIQUE)] == ["NeighboursStall"]
    assert explain_result(measured, PROMISE, UNIQUE) == "the verdict's own reason"


def test_a_fail_is_explained_by_its_first_cause() -> None:
    assert explain_result(result(QUEUE), PROMISE, UNIQUE) == "queue 2.4 s of 2.8: 8 slots, all busy (SLT050)"
    crashed = result(failure=FailureClass.OUT_OF_MEMORY_KV)
    assert explain_result(crashed, PROMISE, UNIQUE) == "the verdict's own reason (SLT204)"


def test_what_a_cause_explains_of_the_wait_is_counted_over_the_slowest() -> None:
    slow = findings(result(parts(0.1, 0.4), slow=parts(2.4, 0.39)), PROMISE, UNIQUE)[0]
    assert slow.cost.ttft_s == pytest.approx(2.4)
    assert slow.cost.ttft_share == pytest.approx(2.4 / 2.8)
    assert slow.evidence[0].text.startswith("slowest requests: queue 2.4 s, prefill 0.39 s")


def test_speed_that_is_lost_to_others_is_counted_against_one_user_alone() -> None:
    shared = findings(result(parts(busy_slots=15.0), p95=0.5, speed=24, slots=16), PROMISE, UNIQUE)[0]
    assert shared.cost.speed_share == pytest.approx(1 - 24 * 0.01)


def test_every_failure_and_every_fault_of_a_measurement_has_an_entry_of_its_own() -> None:
    assert list(FAILURES) == list(FailureClass)
    assert len({entry.id for entry in FAILURES.values()}) == len(FailureClass)
    assert not (WITHDRAWN | WITHDRAWN_FAULTS) & set(catalogue.ENTRIES), (
        "an identifier that was withdrawn is never used again"
    )
    assert {code for code, _ in GATES} <= set(INVALID)
    elsewhere = {"StreamBuffered": "SLT096", "DeviceThrottled": "SLT085"}
    numbered = [elsewhere.get(code, f"SLT{301 + at}") for at, code in enumerate(INVALID)]
    assert [entry.id for entry in INVALID.values()] == numbered
    assert len({entry.id for entry in ENTRIES}) == len({entry.code for entry in ENTRIES}) == len(ENTRIES)


def test_entries_say_what_to_try_what_not_and_how_to_see_that_it_helped() -> None:
    for entry in ENTRIES:
        for text in (entry.cause, entry.first, entry.avoid, entry.verify):
            assert text.endswith("."), entry.id
        assert not entry.title.endswith("."), entry.id


def test_a_late_client_is_found_by_its_code() -> None:
    late = result(QUEUE, outcome=Outcome.INVALID)
    [found] = findings(replace(late, verdict=replace(late.verdict, code="ClientLate")), PROMISE, UNIQUE)
    assert (found.id, found.code) == ("SLT302", "ClientLate")


def searched(measured: TrialResult, *, weights: int = 8 * 10**9, gpu: bool = True) -> Problem:
    """A search with the facts of the model and the device."""
    model = ModelFacts("m.gguf", weights, "id", "any", "F16", 8192, 32_000, 4096, 32, (), weights, weights, 16.0)
    hardware = Hardware("gpu", Decimal(1), bandwidth_bytes_per_s=2e12, is_gpu=gpu)
    candidate = measured.trial.candidate
    return Problem("any", PROMISE, UNIQUE, {"gpu": hardware}, {"BF16": model}, (candidate,), candidate)


def test_a_search_knows_what_memory_bandwidth_allows() -> None:
    slow = alone_at(0.07)
    assert "AboveRoofline" in [one.code for one in trial_findings(searched(slow), slow)]
    assert "AboveRoofline" not in [one.code for one in trial_findings(searched(slow, gpu=False), slow)]


def test_a_model_so_small_that_its_kernels_take_longer_to_launch_than_to_read_it_is_left_alone() -> None:
    slow = result(parts(), p95=0.5)
    assert trial_findings(searched(slow, weights=10**8), slow) == ()


def test_settings_that_nobody_saw_are_not_accused() -> None:
    beside = cached(0.0, cache_prompt=False)
    seen = searched(beside, gpu=False)
    assert [one.code for one in trial_findings(seen, beside)] == ["PromptCacheOff"]
    assert trial_findings(replace(seen, models={}), beside) == ()
