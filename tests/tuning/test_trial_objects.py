"""A LlamaTrial remembers a trial exactly: the same key, the same numbers, and a valid object whatever was measured."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.api.v1alpha1 import LlamaTrial
from slotune.api.v1alpha1.candidate import CandidateSettings
from slotune.api.v1alpha1.measurement import Measurement
from slotune.api.v1alpha1.slo import SLO
from slotune.api.v1alpha1.trial_status import LlamaTrialStatus
from slotune.api.v1alpha1.workload import LlamaWorkloadSpec
from slotune.diagnose.findings import noticed_findings
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.cache_facts import CacheFacts
from slotune.load.device_facts import CLOCK_REASONS, DeviceFacts, Spread
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.quality.divergence import Divergence
from slotune.sandbox.protocol import Progress
from slotune.search.noticed import Noticed
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.trial_objects import (
    SETTING_NAMES,
    candidate_hash,
    candidate_of,
    completed_status,
    result_of,
    settings_of,
    trial_name,
    trial_of,
    trial_spec,
)
from slotune.tuning.trial_progress import progress_of, progress_status
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import candidate, problem

CONTEXT = "0123456789abcdef"
PROBLEM = problem([candidate()], context=CONTEXT)
WORKLOAD = LlamaWorkloadSpec.from_manifest(
    {
        "load": {"requestRate": "6"},
        "prompts": {"synthetic": {"inputTokens": {"mean": 4000}}},
        "output": {"tokens": 250},
    }
)
SLO_OWED = SLO(ttft_p95="1s", tokens_per_second_per_user="30")
DIGEST = "5e" * 32
WHEN = "2026-01-31T12:00:00Z"
on_a_busy_machine = settings(deadline=None, max_examples=60)

candidates = st.builds(
    Candidate,
    variant=st.sampled_from(["BF16", "Q4_K_M"]),
    gpu_class=st.sampled_from(["l4", "a10.large"]),
    parallel_slots=st.integers(1, 256),
    context_per_slot=st.integers(1, 1_000_000),
    kv_unified=st.booleans(),
    batch_size=st.integers(1, 65_536),
    ubatch_size=st.integers(1, 65_536),
    cache_type_k=st.sampled_from(["f16", "q8_0", "q4_0", "iq4_nl"]),
    cache_type_v=st.sampled_from(["f16", "q8_0", "q4_0"]),
    flash_attention=st.sampled_from(["on", "off", "auto"]),
    cache_prompt=st.booleans(),
    cache_ram_mib=st.integers(-1, 65_536),
    cache_idle_slots=st.booleans(),
    cache_reuse=st.integers(0, 4096),
    gpu_layers=st.sampled_from(["all", "auto", "17", "0"]),
    threads=st.none() | st.integers(1, 128),
    speculation=st.sampled_from(["none", "ngram-mod"]),
    speculation_tokens=st.none() | st.integers(0, 1024),
    speculation_match=st.none() | st.integers(0, 1024),
    draft=st.none() | st.just("tiny"),
    backend_sampling=st.booleans(),
    extra_args=st.lists(st.text(st.characters(codec="ascii"), max_size=8), max_size=3).map(tuple),
)
load_trials = st.builds(
    Trial,
    candidate=candidates,
    rate=st.floats(1e-9, 1e9) | st.sampled_from([6.0, 6 / 7, 0.01 / 3, 1 / 3600]) | st.integers(1, 9),
    seed_block=st.integers(0, 100),
    confidence=st.integers(0, 8).map(lambda failed: 1 - (1 - 0.95) / 2**failed) | st.floats(0.5, 0.999),
    attempt=st.integers(1, 3),
    purpose=st.sampled_from([purpose for purpose in Purpose if not purpose.asks_answers]),
    time_limit_s=st.none() | st.floats(20, 1e7),
)
trials = st.one_of(
    load_trials,
    st.builds(replace, load_trials, rate=st.just(0.0), purpose=st.sampled_from([Purpose.REFERENCE, Purpose.QUALITY])),
)
exact_floats = st.floats(allow_nan=False)
maybe = st.none() | exact_floats
counts = st.integers(0, 2**40)
sentences = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
failures = st.none() | st.sampled_from(FailureClass)


def attributions(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Attribution | None]:
    return st.none() | st.builds(Attribution, numbers, numbers, numbers, numbers, st.none() | numbers, maybe)


def comparisons(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Divergence]:
    return st.builds(
        Divergence,
        **{field.name: numbers for field in fields(Divergence)}
        | {"positions": st.integers(1, 2**40), "prompts": counts, "reference_digest": st.just(DIGEST)},
    )


def devices(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[DeviceFacts]:
    spreads = st.none() | st.builds(Spread, numbers, numbers, numbers)
    reasons = st.lists(st.sampled_from(list(CLOCK_REASONS.values())), unique=True).map(
        lambda names: tuple((name, 3) for name in CLOCK_REASONS.values() if name in names)
    )
    return st.builds(
        DeviceFacts,
        name=st.just("2 x NVIDIA L4"),
        samples=counts,
        sm_clock_mhz=spreads,
        memory_clock_mhz=spreads,
        power_w=spreads,
        temperature_c=spreads,
        clock_reasons=reasons,
        others=st.none() | counts,
        others_memory_bytes=counts,
        uuids=st.lists(st.sampled_from(["GPU-1111", "GPU-2222"]), unique=True).map(tuple),
        of_server=st.booleans(),
    )


def caches(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[CacheFacts]:
    perhaps = st.none() | numbers
    return st.builds(
        CacheFacts,
        **{field.name: perhaps for field in fields(CacheFacts)}
        | {
            "prefixes": counts,
            "canaries": counts,
            "foreign": counts,
            "template_keeps_prefix": st.none() | st.booleans(),
        },
    )


def with_the_reference_compared(result: TrialResult) -> TrialResult:
    return result if result.quality is None else replace(result, reference=result.quality.reference_digest)


NOTICED = [
    Noticed("SLT080", "Warning", "Certain", "the log is one of -lv 5", "log:12  7 lines at debug level"),
    Noticed("SLT033", "Warning", "Likely", "the host cache may grow to 8,192 MiB", "pod  limits.memory 4,096 MiB"),
]
"""Of the kinds that only a server's log and limits tell, in the order of what they explain."""


def results(numbers: st.SearchStrategy[float], text: st.SearchStrategy[str]) -> st.SearchStrategy[TrialResult]:
    perhaps = st.none() | numbers
    return st.builds(
        TrialResult,
        trial=trials,
        verdict=st.builds(
            Verdict,
            outcome=st.sampled_from(Outcome),
            reason=text,
            code=st.sampled_from(["PromiseKept", "TooManyViolations", "ClientLate"]),
            confidence=numbers,
            requests=counts,
            violations=counts,
            effective_requests=perhaps,
            share_upper=perhaps,
            run_share_upper=perhaps,
            ttft_p95_s=perhaps,
            ttft_p95_upper_s=perhaps,
            tokens_per_second_p5=perhaps,
        ),
        gpu_seconds=numbers,
        failure=failures,
        failure_knob=st.none() | st.just("cacheRAMMiB"),
        probe=st.none() | st.builds(IdleProbe, numbers, numbers, numbers, perhaps, perhaps),
        latencies=st.builds(
            Latencies,
            ttft_p50_s=perhaps,
            ttft_p95_s=perhaps,
            ttft_p99_s=perhaps,
            tokens_per_second_p5=perhaps,
            tokens_per_second_p50=perhaps,
            longest_gap_p99_s=perhaps,
            ttft_quantiles_s=st.just(()) | st.lists(numbers, max_size=101).map(tuple),
            output_tokens_per_s=perhaps,
            mean_output_tokens=perhaps,
            mean_prompt_tokens=perhaps,
            drafted_tokens=st.none() | counts,
            accepted_tokens=st.none() | counts,
        ),
        attribution=attributions(numbers),
        slowest=attributions(numbers),
        planned_requests=counts,
        run_violation_shares=st.lists(numbers, max_size=6).map(tuple),
        memory_bytes=st.none() | counts,
        compute_buffer_bytes=st.none() | counts,
        cache=st.none() | caches(numbers),
        host_memory_peak_bytes=st.none() | counts,
        effective=st.dictionaries(st.sampled_from(["slots", "context", "build"]), st.just("4")).map(
            lambda pairs: tuple(sorted(pairs.items()))
        ),
        warnings=st.lists(st.just("the clock moved"), max_size=3).map(tuple),
        log_tail=st.lists(st.just("loading the model"), max_size=3).map(tuple),
        trace_hashes=st.lists(st.just("sha256:00ff"), max_size=3).map(tuple),
        started_at=st.sampled_from(["", WHEN]),
        quality=st.none() | comparisons(numbers),
        reference=st.sampled_from(["", DIGEST]),
        device=st.none() | devices(numbers),
        node=st.sampled_from(["", "gpu-7.example"]),
        noticed=st.lists(st.sampled_from(NOTICED), unique=True).map(tuple),
    ).map(with_the_reference_compared)


def spec_of(trial: Trial):
    return trial_spec(
        trial,
        PROBLEM,
        deployment_name="chat",
        model_path="/models/8b.gguf",
        workload=WORKLOAD,
        slo=SLO_OWED,
        measurement=Measurement(),
        pod_template_digest="abcdef0123",
        workload_digest="sha256:12",
    )


def through_the_api_server(result: TrialResult) -> LlamaTrial:
    """Written, stored with its keys sorted as Go sorts them, and read again."""
    found = noticed_findings(result)
    status = completed_status(result, completed_at=WHEN, generation=1, job_name="chat-0123456789", findings=found)
    written = {
        "metadata": {"name": "chat-0123456789"},
        "spec": spec_of(result.trial).to_manifest(),
        "status": status.to_manifest(),
    }
    stored = json.loads(json.dumps(written, sort_keys=True))
    return LlamaTrial.from_manifest({"apiVersion": "slotune.dev/v1alpha1", "kind": "LlamaTrial", **stored})


@on_a_busy_machine
@given(candidates)
def test_a_candidate_is_the_same_after_it_was_written(one: Candidate):
    assert candidate_of(settings_of(one)) == one


def test_every_setting_of_a_candidate_has_its_field():
    assert {field.name for field in fields(Candidate)} == set(SETTING_NAMES)
    assert set(CandidateSettings.model_fields) == set(SETTING_NAMES.values())


@on_a_busy_machine
@given(trials)
def test_a_trial_read_back_has_the_same_key_and_is_the_same(trial: Trial):
    back = trial_of(spec_of(trial))
    assert back.key(CONTEXT) == trial.key(CONTEXT)
    assert back == trial


@on_a_busy_machine
@given(results(exact_floats, sentences))
def test_a_result_read_back_is_what_was_measured(result: TrialResult):
    want = result if result.failure else replace(result, failure_knob=None, log_tail=())
    assert result_of(through_the_api_server(result)) == want


@on_a_busy_machine
@given(results(st.floats(), st.text(max_size=50) | st.just("\ud800 half a character") | st.just("word " * 2000)))
def test_no_result_makes_an_invalid_object(result: TrialResult):
    hostile = replace(
        result,
        verdict=replace(result.verdict, code="no word at all!", requests=-1, violations=2**70),
        warnings=("w" * 5000, *("another\n",) * 99),
        log_tail=("\x00" * 4000,) * 50,
        effective=tuple((f"name {number}", "v" * 999) for number in range(99)),
        run_violation_shares=result.run_violation_shares * 200,
        trace_hashes=("not a digest !",) * 999,
        memory_bytes=-1,
        compute_buffer_bytes=2**80,
        started_at="yesterday",
        node="no name!\n",
    )
    back = result_of(through_the_api_server(hostile))
    assert back is not None
    assert back.trial == result.trial
    assert back.verdict.outcome is result.verdict.outcome
    assert len(json.dumps(completed_status(hostile, completed_at=WHEN).to_manifest())) < 400_000


def test_a_number_that_is_none_leaves_out_what_makes_no_sense_without_it():
    result = plain(
        probe=IdleProbe(0.1, math.nan, 0.01),
        attribution=Attribution(0.1, 0.2, math.nan),
        latencies=Latencies(ttft_p50_s=math.nan, ttft_p95_s=0.5, ttft_quantiles_s=(0.1, math.nan, 0.3)),
        gpu_seconds=math.nan,
        verdict=Verdict(Outcome.FAIL, "late", "TooManyViolations", 0.95, ttft_p95_s=1e9, ttft_p95_upper_s=math.inf),
    )
    back = result_of(through_the_api_server(result))
    assert back is not None
    assert (back.probe, back.attribution, back.gpu_seconds) == (None, None, 0.0)
    assert back.latencies == Latencies(ttft_p95_s=0.5)


def test_neither_secrets_nor_prompts_reach_a_status():
    result = plain(
        failure=FailureClass.CRASHED,
        warnings=("started with --api-key tops3cret",),
        log_tail=('request: {"messages": [{"role": "user", "content": "my diagnosis"}]}', "Bearer tops3cret"),
        verdict=Verdict(Outcome.FAIL, 'its last line: {"prompt": "my diagnosis"}', "Crashed", 0.95),
    )
    written = json.dumps(completed_status(result, completed_at=WHEN).to_manifest())
    assert "tops3cret" not in written
    assert "diagnosis" not in written
    assert "REDACTED" in written


def test_a_trial_that_is_not_complete_has_no_result():
    trial = through_the_api_server(plain())
    running = LlamaTrialStatus(phase="Running")
    assert result_of(trial.model_copy(update={"status": None})) is None
    assert result_of(trial.model_copy(update={"status": running})) is None


def test_a_complete_trial_without_an_outcome_is_asked_again():
    emptied = through_the_api_server(plain()).model_copy(update={"status": LlamaTrialStatus(phase="Complete")})
    back = result_of(emptied)
    assert back is not None
    assert back.verdict.outcome is Outcome.INVALID


def test_a_failure_of_another_version_is_a_crash():
    status = completed_status(plain(failure=FailureClass.WEDGED), completed_at=WHEN).to_manifest()
    status["failure"]["class"] = "EatenByADog"
    trial = through_the_api_server(plain()).model_copy(update={"status": LlamaTrialStatus.from_manifest(status)})
    back = result_of(trial)
    assert back is not None
    assert back.failure is FailureClass.CRASHED


def test_the_status_shows_rounded_numbers_to_people_beside_exact_ones():
    result = plain(
        verdict=Verdict(
            Outcome.PASS, "it held", "PromiseKept", 0.95, 1000, 3, ttft_p95_s=0.6204, tokens_per_second_p5=44.4321
        )
    )
    status = completed_status(result, completed_at=WHEN, generation=4)
    assert status.measured is not None
    assert (status.measured.ttft_p95, status.measured.tokens_per_second_p5) == ("620ms", "44.4")
    assert status.verdict is not None
    assert status.verdict.tokens_per_second_p5 == "44.4321"
    ready = status.condition("Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.observed_generation) == ("True", "PromiseKept", 4)


def test_a_candidate_has_one_hash_whatever_was_measured_of_it():
    assert candidate_hash(candidate()) == candidate_hash(Candidate(**asdict(candidate())))
    assert candidate_hash(candidate()) != candidate_hash(candidate(slots=2))
    assert len(candidate_hash(candidate())) == 10


def test_a_trial_is_named_after_its_deployment_and_what_it_measures():
    trial = Trial(candidate(), 6.0)
    assert trial_name("chat", trial.key(CONTEXT)) == f"chat-{trial.key(CONTEXT)}"


@pytest.mark.parametrize("stage", ["starting", "probing", "warming up", "measuring", "extending", "stopping"])
def test_progress_is_the_same_after_it_was_written(stage):
    progress = Progress(stage, 2, 5, 62, 200, 1, 4, 12.25, 72.5)
    assert progress_of(progress_status(progress, updated_at=WHEN)) == progress


def test_a_trial_that_can_no_longer_pass_allows_no_violation():
    shown = progress_status(Progress("measuring", violation_limit=-1, elapsed_s=math.nan))
    assert (shown.violation_limit, shown.elapsed_seconds) == (0, None)


def plain(**changes: object) -> TrialResult:
    result = TrialResult(Trial(candidate(), 1 / 3), Verdict(Outcome.FAIL, "late", "TooManyViolations", 0.95), 31.25)
    return replace(result, **changes)  # type: ignore[arg-type]  # a test's shorthand
