"""LlamaTrial: one candidate at one rate, measured once. The operator's memory of a search is made of these."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from slotune.api import quantities
from slotune.api.forms import Form, matches
from slotune.api.kubernetes_types import ObjectMeta
from slotune.api.model import Model
from slotune.api.rules import Rule, TransitionRule, exactly_one_of, holds, immutable
from slotune.api.texts import Digest, FilePath, Name, PositiveDecimal, PositiveDuration
from slotune.api.v1alpha1.candidate import CandidateSettings
from slotune.api.v1alpha1.measurement import Measurement
from slotune.api.v1alpha1.meta import API_VERSION, KindInfo, PrinterColumn, Resource
from slotune.api.v1alpha1.trial_status import LlamaTrialStatus
from slotune.api.v1alpha1.workload import LlamaWorkloadSpec

__all__ = ["LlamaTrial", "LlamaTrialSpec", "TrialPromise", "TrialReference"]

ContextDigest = Annotated[str, Form(r"^[0-9a-f]{8,64}$", "8 to 64 hexadecimal digits are needed", 64)]

# A trial's name is a function of what is measured, so its numbers are written with every digit that they have: a sixth
# of 0.01 has 21, and each confirmation that failed halves the error that the next one may make.
ExactRate = Annotated[
    str,
    Form(
        quantities.DECIMAL_PATTERN,
        'a number without a unit is needed, in quotes, such as "6" or "0.8571428571428571"',
        64,
    ),
]
ExactConfidence = Annotated[
    str,
    Form(
        quantities.DECIMAL_PATTERN,
        'a number from 0.5 to 1 is needed, in quotes, such as "0.95"',
        24,
        accepts=lambda text: 0.5 <= float(text) < 1,
        cel="double(self) >= 0.5 && double(self) < 1.0",
        refusal="must be at least 0.5 and below 1",
    ),
]


class TrialPromise(Model):
    """The SLO that the trial is judged by."""

    ttft_p95: PositiveDuration
    """Most time to the first token, for 95 % of requests."""
    tokens_per_second_per_user: PositiveDecimal | None = None
    """Least tokens per second that 95 % of users see; nothing is owed when absent."""


class TrialReference(Model):
    """The recorded answers that a Quality trial compares with."""

    config_map: Name | None = None
    """ConfigMap that holds them."""
    secret: Name | None = None
    """Secret that holds them, where the prompts come from one."""
    digest: Digest
    """Digest of what was recorded: anything else is not compared with."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one_of("config_map", "secret", message="exactly one of configMap and secret is needed"),
    )


class LlamaTrialSpec(Model):
    """What is measured. It says everything that the result depends on, so its name can be a function of it."""

    candidate: CandidateSettings
    """The server's settings."""
    model_path: FilePath
    """Path of the GGUF file inside the server's container."""
    draft_path: FilePath | None = None
    """Path of the draft model's GGUF file there; needed where the candidate has one."""
    request_rate: ExactRate
    """Requests per second that this one server gets; 0 where answers are looked at and nothing else."""
    seed_block: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Selects the seeds of all runs; a confirmation uses others than the search."""
    confidence: ExactConfidence
    """How sure a Pass or Fail must be; a confirmation may have to be surer than the search."""
    attempt: Annotated[int, Field(ge=1, le=10)] = 1
    """2 when the first measurement was at fault."""
    purpose: Literal[
        "Baseline", "Search", "Confirm", "Explain", "Partial", "Finalist", "Sentinel", "Reference", "Quality"
    ] = "Search"
    """Why it was started. Four are measured differently: a Finalist for one run, of a Sentinel its idle speed alone, of
    a Reference its answers, of a Quality trial how far its answers lie from those of the reference."""
    time_limit: PositiveDuration | None = None
    """Most time that it may take, the start included; no limit when absent."""
    reference: TrialReference | None = None
    """What a Quality trial compares with."""
    promise: TrialPromise
    """The SLO that it is judged by."""
    workload: LlamaWorkloadSpec
    """The traffic, as it was when the trial was made."""
    workload_digest: Digest | None = None
    """Digest of that traffic, prompts included: what the prompts' source holds later may be something else."""
    measurement: Measurement = Measurement()
    """How much evidence a verdict takes."""
    context_digest: ContextDigest
    """Digest of all that is the same for every trial of a search: weights files, workload, SLO, measurement, engine."""
    pod_template_digest: ContextDigest | None = None
    """Digest of the pod template that the server's pod is made from."""
    llama_deployment: Name
    """LlamaDeployment whose pod template the server's pod is made from."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            lambda it: (float(it.request_rate) > 0) != (it.purpose in {"Reference", "Quality"}),
            "must be more than 0; of a Reference and a Quality trial, which get no load, it must be 0",
            ("request_rate", "purpose"),
            f"!{matches('self.requestRate', quantities.DECIMAL_PATTERN)} || "
            "(double(self.requestRate) > 0.0) != (has(self.purpose) && self.purpose in ['Reference', 'Quality'])",
            at="requestRate",
        ),
    )
    TRANSITIONS: ClassVar[tuple[TransitionRule, ...]] = (
        immutable("a trial says what was measured, so its spec can't be changed: make another one"),
    )


class LlamaTrial(Resource):
    """One candidate measured at one rate, by one Job. Its result can serve every LlamaDeployment that asks the same."""

    api_version: Literal["slotune.dev/v1alpha1"] = API_VERSION
    """Version of this type."""
    kind: Literal["LlamaTrial"] = "LlamaTrial"
    """Name of this type."""
    metadata: ObjectMeta
    """Name, namespace and labels."""
    spec: LlamaTrialSpec
    """What is measured."""
    status: LlamaTrialStatus | None = None
    """What came of it; written by the operator."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="LlamaTrial",
        plural="llamatrials",
        short_name="llt",
        namespaced=True,
        columns=(
            PrinterColumn("Deployment", ".spec.llamaDeployment"),
            PrinterColumn("Purpose", ".spec.purpose", priority=1),
            PrinterColumn("Model", ".spec.candidate.model"),
            PrinterColumn("Slots", ".spec.candidate.parallelSlots", "integer"),
            PrinterColumn("Batch", ".spec.candidate.batchSize", "integer", priority=1),
            PrinterColumn("KV", ".spec.candidate.cacheTypeK", priority=1),
            PrinterColumn("Rate", ".spec.requestRate"),
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Outcome", ".status.outcome"),
            PrinterColumn("Reason", ".status.reason"),
            PrinterColumn("TTFT-p95", ".status.measured.ttftP95"),
            PrinterColumn("Tok/s", ".status.measured.tokensPerSecondP5"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
