"""What came of a LlamaTrial: the outcome for people, and every number that a later search needs, exactly.

Floats are strings here (``repr`` of the float), so that what is read back is what was measured.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slotune.api.forms import Items, Properties
from slotune.api.model import StatusModel
from slotune.api.texts import Digest, Identifier, Name, Number, Reason, Sentence, ShortText, Timestamp
from slotune.api.v1alpha1.candidate import Environment, Measured
from slotune.api.v1alpha1.meta import CommonStatus

__all__ = [
    "LlamaTrialStatus",
    "TrialAttribution",
    "TrialCache",
    "TrialDevice",
    "TrialFailure",
    "TrialFinding",
    "TrialLatencies",
    "TrialMemory",
    "TrialProbe",
    "TrialProgress",
    "TrialQuality",
    "TrialSpread",
    "TrialVerdict",
]

Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[int, Field(ge=0, le=2**53)]
"""Eight petabytes: bounds pass the API server as floats, and 2^63 - 1 comes out negative (Kubernetes 1.34)."""


class TrialProgress(StatusModel):
    """Where a running trial stands."""

    stage: Literal["Starting", "Probing", "WarmingUp", "Measuring", "Extending", "Comparing", "Stopping"]
    """What it does now."""
    run: Count = 0
    """Run from 1; 0 before the first."""
    runs: Count = 0
    """Runs in all."""
    requests_done: Count = 0
    """Requests that are decided, over all runs."""
    requests_planned: Count = 0
    """Requests in all."""
    violations: Count = 0
    """Requests that broke the SLO so far."""
    violation_limit: Count = 0
    """Most violations with which it can still pass."""
    elapsed_seconds: Number | None = None
    """Since the start."""
    remaining_seconds: Number | None = None
    """At most until the end."""
    updated_at: Timestamp | None = None
    """When this was true."""


class TrialFailure(StatusModel):
    """Why the server could not be measured."""

    failure_class: Annotated[Reason, Field(alias="class")]
    """E.g. OutOfMemoryKV, BadFlag, CPUFallback, Wedged, StartupTimeout."""
    knob: ShortText | None = None
    """Setting to lower or change, e.g. contextSizePerSlot."""
    log_tail: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Items(most=20)] = ()
    """Last lines of the server's log, without prompts."""


class TrialVerdict(StatusModel):
    """The evidence behind the outcome."""

    confidence: Number
    """How sure it is."""
    requests: Count = 0
    """Requests that counted."""
    planned_requests: Count = 0
    """Requests of a full measurement; fewer count when it was stopped early."""
    violations: Count = 0
    """Requests that broke the SLO."""
    effective_requests: Number | None = None
    """Requests left after clustering of violations is discounted."""
    share_upper: Number | None = None
    """Upper bound of the share of violations, from requests."""
    run_share_upper: Number | None = None
    """Upper bound of the share of violations, from runs."""
    run_violation_shares: Annotated[tuple[Number, ...], Items(most=500)] = ()
    """Share of violations in each run."""
    ttft_p95_seconds: Number | None = None
    """p95 TTFT."""
    ttft_p95_upper_seconds: Number | None = None
    """Its upper bound."""
    tokens_per_second_p5: Number | None = None
    """Tokens per second that 95 % of users saw at least."""


class TrialProbe(StatusModel):
    """The idle server: medians over a few requests, one at a time."""

    overhead_seconds: Number
    """TTFT without the reading of the prompt."""
    prefill_tokens_per_second: Number
    """Speed of reading a prompt."""
    decode_step_seconds: Number
    """Time per token of one answer."""
    best_prefill_tokens_per_second: Number | None = None
    """Speed of the fastest of these requests: what a bound may rest on, since a neighbour only makes it slower."""
    best_decode_step_seconds: Number | None = None
    """The fastest time per token of any of them."""


class TrialLatencies(StatusModel):
    """The shape of what users saw."""

    ttft_p50_seconds: Number | None = None
    """Median TTFT."""
    ttft_p95_seconds: Number | None = None
    """p95 TTFT."""
    ttft_p99_seconds: Number | None = None
    """p99 TTFT."""
    tokens_per_second_p5: Number | None = None
    """Tokens per second that 95 % of users saw at least."""
    tokens_per_second_p50: Number | None = None
    """Median tokens per second per user."""
    longest_gap_p99_seconds: Number | None = None
    """p99 over requests of the longest pause between two tokens."""
    output_tokens_per_second: Number | None = None
    """Tokens of all users together."""
    mean_output_tokens: Number | None = None
    """Mean length of an answer."""
    mean_prompt_tokens: Number | None = None
    """Mean length of a prompt, cached tokens included."""
    drafted_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens that the server guessed ahead; absent when it guessed none."""
    accepted_tokens: Annotated[int, Field(ge=0)] | None = None
    """Those of them that the model would have said as well."""
    ttft_quantiles_seconds: Annotated[tuple[Number, ...], Items(most=101)] = ()
    """TTFT at 0, 1, ... 100 %."""


class TrialAttribution(StatusModel):
    """Where mean TTFT went; the four parts add up to it."""

    queue_seconds: Number
    """Waiting for a slot."""
    prefill_seconds: Number
    """Reading the uncached prompt at idle speed."""
    contention_seconds: Number
    """What reading took longer because others shared the batch."""
    overhead_seconds: Number
    """The rest: network, parsing, tokenizing."""
    cached_share: Number | None = None
    """Cached prompt tokens over all prompt tokens; absent when the server never said."""
    busy_slots: Number | None = None
    """Mean slots at work."""


class TrialMemory(StatusModel):
    """Memory that the server used, in bytes."""

    device_bytes: Bytes | None = None
    """Model, KV cache and compute buffers as the engine's log states them."""
    compute_buffer_bytes: Bytes | None = None
    """Compute buffers alone."""
    host_peak_bytes: Bytes | None = None
    """Most host memory."""


class TrialQuality(StatusModel):
    """How far the answers lie from the reference's. Divergences are nats per token, shares lie in 0..1."""

    reference_digest: Digest = ""
    """Digest of the reference that was recorded or compared with."""
    positions: Count = 0
    """Tokens that were compared; 0 where the reference was recorded."""
    prompts: Count = 0
    """Prompts that they belong to."""
    mean_kld: Annotated[Number | None, Field(alias="meanKLD")] = None
    """Mean KL divergence, a lower bound from the likeliest tokens."""
    kld_standard_error: Annotated[Number | None, Field(alias="kldStandardError")] = None
    """Its standard error; tokens of one prompt err together."""
    kld_lower: Annotated[Number | None, Field(alias="kldLower")] = None
    """Least that it may be, for a Fail."""
    kld_upper: Annotated[Number | None, Field(alias="kldUpper")] = None
    """Most that it may be, for a Pass."""
    top1: Number | None = None
    """Share of tokens at which both make the same first choice."""
    top1_lower: Number | None = None
    """Least that it may be, for a Pass."""
    top1_upper: Number | None = None
    """Most that it may be, for a Fail."""
    effective_positions: Number | None = None
    """Independent tokens that the share is worth."""
    residual_mass: Number | None = None
    """Mean probability of tokens that were not told apart."""
    perplexity_ratio: Number | None = None
    """Perplexity of the reference's answers here, by that of the reference."""
    confidence: Number | None = None
    """How sure each bound is."""


class TrialSpread(StatusModel):
    """How far a quantity moved."""

    least: Number
    """Least."""
    median: Number
    """Median."""
    most: Number
    """Most."""


class TrialDevice(StatusModel):
    """What the accelerator did while requests were measured, by a look a second."""

    name: ShortText
    """Of the device, with their number where there are several."""
    samples: Count = 0
    """Looks."""
    sm_clock_megahertz: TrialSpread | None = None
    """Clock of its multiprocessors."""
    memory_clock_megahertz: TrialSpread | None = None
    """Clock of its memory."""
    power_watts: TrialSpread | None = None
    """Power draw."""
    temperature_celsius: TrialSpread | None = None
    """Temperature."""
    clock_reasons: Annotated[dict[str, Count], Properties(32)] = Field(default_factory=dict)
    """What set its clocks, in the driver's words (SwPowerCap, HwThermalSlowdown, ...), and at how many looks."""
    others: Count | None = None
    """Most processes on it beside the server; absent when they could not be told apart."""
    others_memory_bytes: Bytes = 0
    """Most memory that these held."""
    uuids: Annotated[tuple[ShortText, ...], Items(most=16)] = ()
    """Which devices they were."""
    of_server: bool = True
    """Whether the server is known to compute on all of them. Else they may be a neighbour's, and fault nobody."""


class TrialCache(StatusModel):
    """The prompt cache: what it served, what it could have served, and whose it was. Shares lie in 0..1."""

    theoretical_reuse: Number | None = None
    """Share of prompt tokens that a cache which forgets nothing would have served."""
    measured_reuse: Number | None = None
    """Share that came from the cache."""
    slots_reuse: Number | None = None
    """Share that the slots alone could serve at best."""
    prefixes: Count = 0
    """Different beginnings that arrived and can be shared."""
    prefix_share: Number | None = None
    """Of prompts that could reuse anything: the part of a prompt."""
    template_keeps_prefix: bool | None = None
    """Whether the chat template leaves alike what is alike."""
    cold_ttft_seconds: Annotated[Number | None, Field(alias="coldTTFTSeconds")] = None
    """Median TTFT of a prompt alone on the server of which nothing is cached."""
    cold_reuse: Number | None = None
    """Share of such prompts that came from the cache all the same."""
    warm_ttft_seconds: Annotated[Number | None, Field(alias="warmTTFTSeconds")] = None
    """Median TTFT of a prompt alone on the server whose prefix was just read."""
    warm_reuse: Number | None = None
    """Share of such prompts that came from the cache."""
    canaries: Count = 0
    """Answers to canary prompts that were compared."""
    foreign: Count = 0
    """Of these, answers given from another prompt's context."""
    canary_noise: Number | None = None
    """Nats: most that two answers to one canary differed without any cache."""
    canary_divergence: Number | None = None
    """Nats: most that an answer to a canary differed from its first one."""


class TrialFinding(StatusModel):
    """One cause of what was measured, or something worth knowing beside; docs/diagnosis.md has an entry for each."""

    id: Identifier
    """Entry that says more: what to try, what not, how to see that it helped."""
    code: Reason
    """The same as a word, e.g. TooFewSlots."""
    severity: Literal["Critical", "Warning", "Info"]
    """Critical: it does not serve, or wrongly. Warning: users lose what a change would give back. Info: nothing to
    change."""
    confidence: Literal["Certain", "Likely", "Possible"]
    """How sure the cause is."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """In words, with this trial's numbers."""
    evidence: Annotated[str, Field(max_length=512)] = ""
    """The line or the number that it rests on, and where it was seen: log:12 is line 12 of the server's log."""
    knobs: Annotated[tuple[ShortText, ...], Items(most=8)] = ()
    """Settings to try, the most promising first; replicas when none helps."""


class LlamaTrialStatus(CommonStatus):
    """What came of the trial."""

    phase: Literal["Pending", "Queued", "Running", "Complete"] | None = None
    """Where it stands, for people. Queued: something else, such as Kueue, holds it back."""
    outcome: Literal["Pass", "Fail", "Inconclusive", "Invalid"] | None = None
    """How it ended. Pass: the SLO was shown to hold. Fail: it was shown broken, or the server could not run.
    Inconclusive: neither could be shown. Invalid: the measurement was at fault, not the candidate."""
    reason: Reason | None = None
    """Why, as a word: e.g. PromiseKept, TooManyViolations, ClientLate."""
    message: Sentence = ""
    """Why, in words."""
    measured: Measured | None = None
    """What users saw, for people."""
    progress: TrialProgress | None = None
    """Where it stands while it runs."""
    verdict: TrialVerdict | None = None
    """The evidence behind the outcome."""
    failure: TrialFailure | None = None
    """Why the server could not be measured."""
    findings: Annotated[tuple[TrialFinding, ...], Items(most=16)] = ()
    """What the measurement and the server's log say about its cause, the first cause first."""
    probe: TrialProbe | None = None
    """The idle server."""
    latencies: TrialLatencies | None = None
    """The shape of what users saw."""
    attribution: TrialAttribution | None = None
    """Where TTFT went."""
    slowest: TrialAttribution | None = None
    """The same over the slowest 5 % of requests: what p95 TTFT is made of."""
    quality: TrialQuality | None = None
    """How far the answers lie from the reference's."""
    cache: TrialCache | None = None
    """What the prompt cache served."""
    memory: TrialMemory | None = None
    """Memory that the server used."""
    device: TrialDevice | None = None
    """What the accelerator did; absent where the load client cannot see it."""
    gpu_seconds: Number | None = None
    """Time that the GPU was held, start and warm-up included."""
    started_at: Timestamp | None = None
    """When the server was started."""
    completed_at: Timestamp | None = None
    """When the outcome was known."""
    environment: Environment | None = None
    """What the result is true for."""
    effective: Annotated[dict[str, Annotated[str, Field(max_length=256)]], Properties(64)] = Field(default_factory=dict)
    """Configuration that the server confirms, by setting."""
    warnings: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Items(most=32)] = ()
    """What the server or the client noticed."""
    trace_hashes: Annotated[tuple[Digest, ...], Items(most=500)] = ()
    """Digest of the traffic of each run."""
    interruptions: Count = 0
    """How often it had to be run again for reasons that say nothing about the candidate."""
    job_name: Name | None = None
    """Job that ran it."""
    record_config_map: Name | None = None
    """ConfigMap with the compressed record of every request."""
    reference_config_map: Name | None = None
    """ConfigMap with the answers that a Reference trial recorded."""
    reference_secret: Name | None = None
    """Secret with them, where the prompts come from one."""
