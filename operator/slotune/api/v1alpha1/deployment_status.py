"""What the operator says about a LlamaDeployment. Bounded: raw measurements live in ConfigMaps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slotune.api.forms import Items, Properties
from slotune.api.model import StatusModel
from slotune.api.texts import (
    Digest,
    Duration,
    Label,
    Name,
    Number,
    Reason,
    Sentence,
    ShortText,
    Timestamp,
)
from slotune.api.v1alpha1.candidate import Configuration, Environment, Explanation
from slotune.api.v1alpha1.meta import CommonStatus
from slotune.api.v1alpha1.rollout import CandidateHash

__all__ = [
    "Applied",
    "ChangeStep",
    "Failures",
    "LlamaDeploymentStatus",
    "Phase",
    "Production",
    "Progress",
    "Question",
    "Recommendation",
    "Rejected",
    "RestoreIntent",
    "RolloutRecord",
]

Phase = Literal[
    "Pending",
    "Baselining",
    "Searching",
    "Confirming",
    "Explaining",
    "Recommended",
    "AwaitingApproval",
    "RollingOut",
    "Verifying",
    "Tuned",
    "Infeasible",
    "Inconclusive",
    "RolledBack",
    "Failed",
    "Suspended",
]
"""For people. Conditions are the truth."""


class ChangeStep(StatusModel):
    """What one group of changes bought, on top of the steps before it."""

    name: Label
    """baseline, queue, cache, bytes or hardware."""
    changed: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Items(most=32)] = ()
    """Settings that changed in this step."""
    replicas: Annotated[int, Field(ge=0)] | None = None
    """Fewest replicas that kept the SLO; absent when none did or it was not measured."""
    monthly_cost: Number | None = None
    """What they cost."""


class Recommendation(Configuration):
    """The cheapest configuration that was measured to keep the SLO."""

    args: Annotated[tuple[Annotated[str, Field(max_length=32_768)], ...], Items(most=512)] = ()
    """Arguments of llama-server, ready to paste."""
    patch_config_map: Name | None = None
    """ConfigMap with a ready Kustomize patch."""
    saving_percent: Number | None = None
    """Saved against today's cost; negative when keeping the SLO costs more."""
    cost_gap: Number | None = None
    """Monthly cost that an undecided candidate might still save; "0" when this is proved to be the cheapest."""
    steps: Annotated[tuple[ChangeStep, ...], Items(most=8)] = ()
    """What each change bought."""
    proved: Annotated[tuple[Sentence, ...], Items(most=16)] = ()
    """What was proved, in words."""
    not_proved: Annotated[tuple[Sentence, ...], Items(most=16)] = ()
    """What was not, in words."""


class Applied(StatusModel):
    """A configuration that was rolled out, in full: enough to come back to it."""

    candidate_hash: CandidateHash
    """Names the candidate."""
    time: Timestamp
    """When it was rolled out."""
    replicas: Annotated[int, Field(ge=0)] | None = None
    """Replicas then."""
    args: Annotated[tuple[Annotated[str, Field(max_length=32_768)], ...], Items(most=512)] = ()
    """Arguments of llama-server."""
    template_digest: Digest | None = None
    """Digest of the pod template."""


class RolloutRecord(StatusModel):
    """The change of production that is under way, or the last one. Every step is written here before it is taken."""

    candidate_hash: CandidateHash
    """Candidate that production gets."""
    stage: Literal[
        "Draining", "Deferred", "Applying", "Verifying", "Unproven", "RollingBack", "RolledBack", "Halted", "Done"
    ]
    """Where it stands. Deferred: running answers were not cut; it is tried again. Unproven: nothing was seen of it.
    Halted: a person has to look."""
    generation: Annotated[int, Field(ge=0)] = 0
    """Version of the spec that it began under."""
    started_at: Timestamp
    """When draining began."""
    since: Timestamp
    """When the stage began."""
    replaces: Digest | None = None
    """Digest of the pod template that the candidate replaces."""
    template_digest: Digest | None = None
    """Digest of the pod template with the candidate, once it was seen."""
    last_look: Timestamp | None = None
    """When production was last looked at."""
    kept: Annotated[int, Field(ge=0)] = 0
    """Looks that showed the SLO kept."""
    missed: Annotated[int, Field(ge=0)] = 0
    """Looks that showed it missed."""
    inconclusive: Annotated[int, Field(ge=0)] = 0
    """Looks that showed neither."""
    reverts: Annotated[int, Field(ge=0)] = 0
    """How often somebody put the old pod template back."""
    reason: Reason | None = None
    """Why it stands there, as a word."""
    message: Sentence = ""
    """The same in words."""


class RestoreIntent(StatusModel):
    """How to give production its GPU back. Written before the GPU is taken, removed once production is back."""

    name: Name
    """Deployment that was scaled down."""
    uid: ShortText
    """Its identity: another one of the same name is left alone."""
    resource_version: ShortText
    """Version that was seen."""
    generation: Annotated[int, Field(ge=0)] | None = None
    """Version of its spec that was seen: while it is the same, production was not scaled down yet."""
    replicas: Annotated[int, Field(ge=0)]
    """Replicas to give back."""
    template_digest: Digest
    """Digest of the pod template that was seen."""
    since: Timestamp
    """When production went down."""
    until: Timestamp
    """When it must be back."""


class Question(StatusModel):
    """What a search is about, as digests: which of them has changed says why it is looked for again."""

    spec: Digest | None = None
    """Of the LlamaDeployment itself."""
    server: Digest | None = None
    """Of the pod of targetRef as it runs, with its flags and its image."""
    models: Digest | None = None
    """Of the weights files."""
    workload: Digest | None = None
    """Of the traffic, prompts included."""
    hardware: Digest | None = None
    """Of the GPU classes."""
    devices: Annotated[tuple[ShortText, ...], Items(most=16)] = ()
    """GPUs with their drivers, as the labels of the nodes name them."""
    epoch: ShortText | None = None
    """status.searchEpoch then."""


class Progress(StatusModel):
    """How far the search is."""

    search: Digest | None = None
    """Names the search; a change of the spec starts another one."""
    inputs: Digest | None = None
    """All that the answer depends on: while it is the same, a finished search is not run again."""
    question: Question | None = None
    """The same, part by part."""
    started_at: Timestamp | None = None
    """When it began."""
    last_progress_time: Timestamp | None = None
    """When something was last learned."""
    candidates: Annotated[int, Field(ge=0)] = 0
    """Candidates in all."""
    pruned: Annotated[int, Field(ge=0)] = 0
    """Candidates that were ruled out without a trial."""
    trials: Annotated[int, Field(ge=0)] = 0
    """Trials that ended."""
    running: Annotated[int, Field(ge=0)] = 0
    """Trials that run."""
    passed: Annotated[int, Field(ge=0)] = 0
    """Trials that showed the SLO kept."""
    failed: Annotated[int, Field(ge=0)] = 0
    """Trials that showed it broken, or whose server could not run."""
    inconclusive: Annotated[int, Field(ge=0)] = 0
    """Trials that showed neither."""
    invalid: Annotated[int, Field(ge=0)] = 0
    """Trials whose measurement was at fault."""
    reused: Annotated[int, Field(ge=0)] = 0
    """Trials of an earlier search that answered a question of this one."""
    gpu_minutes_used: Number | None = None
    """Minutes that trials held GPUs."""
    current_trial: Name | None = None
    """LlamaTrial that runs now."""
    message: Sentence = ""
    """What happens now, in words."""


class Rejected(StatusModel):
    """Candidates that were ruled out for one reason."""

    code: Reason
    """Why, as a word."""
    count: Annotated[int, Field(ge=1)]
    """How many."""
    message: Sentence = ""
    """An example in words."""


class Production(StatusModel):
    """What production delivers, beside what was measured."""

    observed_at: Timestamp
    """When it was looked at."""
    state: Literal["Value", "NoData", "NotANumber", "SeveralSeries", "Unreachable"]
    """Whether there was a value, and if not, why."""
    ttft_p95: Duration | None = None
    """p95 TTFT in production."""
    tokens_per_second: Number | None = None
    """Tokens per second per user in production; the mean when it comes from llama-server's own counters."""
    requests_processing: Number | None = None
    """Requests that were answered at the same time, on average, from llama-server's own counters."""
    requests_deferred: Number | None = None
    """Requests that waited for a slot, on average, from llama-server's own counters."""
    prompt_tokens_per_second: Number | None = None
    """Prompt tokens that a replica reads per second while it reads, from llama-server's own counters."""
    kept_since: Timestamp | None = None
    """Since when looks show the SLO kept, or its speed alone where TTFT has no query."""
    breached_since: Timestamp | None = None
    """Since when the SLO is missed. Two kept looks in a row end it; a look without a value does not."""
    last_breach_time: Timestamp | None = None
    """When a look last showed the SLO missed."""
    message: Sentence = ""
    """Production beside what was measured, or why there is no value, in words."""


class Failures(StatusModel):
    """Failures in a row, from which the time of the next attempt follows."""

    count: Annotated[int, Field(ge=0)] = 0
    """How many."""
    last_time: Timestamp | None = None
    """When the last one was."""
    reason: Reason | None = None
    """What it was."""


class LlamaDeploymentStatus(CommonStatus):
    """What is known about the deployment and its answer."""

    phase: Phase | None = None
    """Where it stands, for people; conditions are the truth."""
    baseline: Configuration | None = None
    """What ran when the search began."""
    recommendation: Recommendation | None = None
    """The cheapest configuration that was measured to keep the SLO."""
    binding_constraint: Explanation | None = None
    """What stands in the way when nothing can keep the SLO: e.g. TTFTPrefill, TTFTQueue, TokensPerSecond, Memory."""
    nearest: Configuration | None = None
    """What came closest when nothing passed."""
    rejected: Annotated[tuple[Rejected, ...], Items(most=32, key="code")] = ()
    """Why the others are not the answer, counted by reason."""
    serving_template_digest: Digest | None = None
    """Digest of the pod template that the condition SLOMet speaks of; absent while SLOMet is Unknown."""
    applied: Applied | None = None
    """What slotune rolled out last."""
    last_good: Applied | None = None
    """What a failed rollout goes back to."""
    rollout: RolloutRecord | None = None
    """The change of production that is under way, or the last one."""
    refused_candidates: Annotated[tuple[CandidateHash, ...], Items(most=16, distinct=True)] = ()
    """Candidates that were rolled back; they are not rolled out again by themselves."""
    restore: RestoreIntent | None = None
    """How to give production its GPU back, while it is borrowed."""
    last_restored: Timestamp | None = None
    """When production last got its GPU back; it is borrowed once per window."""
    progress: Progress | None = None
    """How far the search is."""
    environment: Environment | None = None
    """What the measurements are true for."""
    production: Production | None = None
    """What production delivers."""
    failures: Failures | None = None
    """Failures in a row."""
    defaults: Annotated[dict[str, Annotated[str, Field(max_length=256)]], Properties(64)] = Field(default_factory=dict)
    """Values that slotune chose for what the spec leaves open, by field path."""
    last_search_time: Timestamp | None = None
    """When the last search ended."""
    next_search_time: Timestamp | None = None
    """When the next one is due."""
    last_handled_rerun: ShortText | None = None
    """spec.rerun.reason that was last acted on."""
    search_epoch: ShortText | None = None
    """Names the last search that began although the question was the same: for it, nothing measured before counts."""
