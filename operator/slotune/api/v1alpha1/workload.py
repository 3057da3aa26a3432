"""The traffic that a server must carry: which prompts, how long the answers, and how often."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from slotune.api.forms import Items
from slotune.api.kubernetes_types import ObjectMeta
from slotune.api.model import Model
from slotune.api.quantities import parse_decimal
from slotune.api.rules import Rule, exactly_one_of, holds
from slotune.api.texts import (
    Digest,
    Name,
    Number,
    Probability,
    SignedDecimal,
    UnsignedDecimal,
)
from slotune.api.v1alpha1.arrivals import ArrivalProcess, Arrivals, FileReference, Load
from slotune.api.v1alpha1.meta import (
    API_VERSION,
    CommonStatus,
    KeyReference,
    KindInfo,
    PrinterColumn,
    Resource,
)

__all__ = [
    "InputTokens",
    "LlamaWorkload",
    "LlamaWorkloadSpec",
    "LlamaWorkloadStatus",
    "Output",
    "Prompts",
    "Sampling",
    "SharedPrefix",
    "SyntheticPrompts",
]


class InputTokens(Model):
    """How long the prompts are, in tokens: a normal distribution, cut at 1 and at max."""

    mean: Annotated[int, Field(ge=1, le=1_048_576)]
    """Mean length, a shared prefix included."""
    stddev: Annotated[int, Field(ge=0, le=1_048_576)] = 0
    """Standard deviation; 0 makes all prompts equally long."""
    max: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Longest prompt; mean + 3 × stddev when absent. Each slot's context must hold it and the answer."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            lambda it: it.max is None or it.max >= it.mean,
            "must not be below mean",
            ("mean", "max"),
            "!has(self.max) || self.max >= self.mean",
            at="max",
        ),
    )


class SharedPrefix(Model):
    """What prompts have in common, such as a system prompt or a document: the part that a cache can save."""

    tokens: Annotated[int, Field(ge=1, le=1_048_576)]
    """Length of the common part, of the input tokens."""
    groups: Annotated[int, Field(ge=1, le=100_000)] = 1
    """How many different prefixes there are."""
    zipf_exponent: UnsignedDecimal = "1"
    """How unequal the groups are: the k-th has weight 1/k^exponent, "0" makes them equal."""


class SyntheticPrompts(Model):
    """Prompts that slotune makes: a prefix shared within a group, then a suffix that never repeats."""

    input_tokens: InputTokens
    """How long the prompts are."""
    shared_prefix: SharedPrefix | None = None
    """What they have in common; nothing when absent."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            lambda it: it.shared_prefix is None or it.shared_prefix.tokens < it.input_tokens.mean,
            "must be less than inputTokens.mean: every prompt has a part of its own after the shared prefix",
            ("input_tokens", "shared_prefix"),
            "!has(self.sharedPrefix) || self.sharedPrefix.tokens < self.inputTokens.mean",
            at="sharedPrefix.tokens",
        ),
    )


class Prompts(Model):
    """What users send. Exactly one field. Real prompts are JSON Lines, one a line: {"text": "..."} or
    {"messages": [...]} as for /v1/chat/completions, with an optional "max_tokens". Their text never enters a status, an
    event, a log or a report."""

    synthetic: SyntheticPrompts | None = None
    """Made by slotune, from lengths."""
    file: FileReference | None = None
    """A file of real prompts."""
    config_map_key_ref: KeyReference | None = None
    """Real prompts in a key of a ConfigMap of the same namespace."""
    secret_key_ref: KeyReference | None = None
    """Real prompts in a key of a Secret of the same namespace."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one_of(
            "synthetic",
            "file",
            "config_map_key_ref",
            "secret_key_ref",
            message="exactly one of synthetic, file, configMapKeyRef and secretKeyRef is needed",
        ),
    )


class Output(Model):
    """How long answers are."""

    tokens: Annotated[int, Field(ge=2, le=131_072)]
    """Tokens of each answer; at least 2, or no speed could be measured."""
    ignore_eos: Annotated[bool, Field(alias="ignoreEOS")] = True
    """Whether every answer gets exactly that many tokens, which keeps candidates comparable. False lets the model end
    earlier, for real prompts whose answers' length is the point."""


class Sampling(Model):
    """Sampling settings that users send with their requests. Penalties make llama-server measurably slower, so state
    them if users do. Greedy (temperature 0) when absent."""

    temperature: UnsignedDecimal = "0"
    """0 is greedy, and the same for every candidate."""
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Only the k most likely tokens; 0 is all."""
    top_p: Probability | None = None
    """Only the most likely tokens that add up to this probability."""
    min_p: Probability | None = None
    """Only tokens at least this likely, relative to the most likely one."""
    repeat_penalty: UnsignedDecimal | None = None
    """Above 1 discourages repetition."""
    presence_penalty: SignedDecimal | None = None
    """As OpenAI's API defines it."""
    frequency_penalty: SignedDecimal | None = None
    """As OpenAI's API defines it."""


class LlamaWorkloadSpec(Model):
    """A traffic shape."""

    load: Load
    """How much traffic there is at the peak."""
    arrivals: Arrivals | None = None
    """How requests are spaced; when absent, Replay for a trace and Poisson otherwise."""
    prompts: Prompts
    """What users send."""
    output: Output
    """How long answers are."""
    sampling: Sampling | None = None
    """How tokens are chosen; greedily when absent."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            lambda it: it.arrivals is None or it.arrivals.process != "Replay" or it.load.trace is not None,
            "process Replay needs a recorded trace in load.trace",
            ("load", "arrivals"),
            "!has(self.arrivals) || self.arrivals.process != 'Replay' || has(self.load.trace)",
            at="arrivals.process",
        ),
    )

    @property
    def arrival_process(self) -> ArrivalProcess:
        """The process that is used, whether it is written or not."""
        if self.arrivals is not None:
            return self.arrivals.process
        return "Poisson" if self.load.trace is None else "Replay"

    @property
    def burstiness(self) -> float:
        """Shape of the Gamma process; 1.0 for every other process."""
        written = None if self.arrivals is None else self.arrivals.burstiness
        return 1.0 if written is None else float(parse_decimal(written, "burstiness"))


class LlamaWorkloadStatus(CommonStatus):
    """What slotune found out about the traffic."""

    peak_request_rate: Number | None = None
    """Requests per second at the peak, over the whole fleet."""
    prompts: Annotated[int, Field(ge=0)] | None = None
    """How many different prompts there are; absent for synthetic ones."""
    input_tokens_mean: Number | None = None
    """Mean prompt length in tokens, as the model's tokenizer counts."""
    input_tokens_max: Annotated[int, Field(ge=0)] | None = None
    """Longest prompt in tokens."""
    digest: Digest | None = None
    """Changes when anything about the traffic does, prompts included."""
    used_by: Annotated[tuple[Name, ...], Items(most=64)] = ()
    """LlamaDeployments of this namespace that name it."""


class LlamaWorkload(Resource):
    """A traffic shape that several LlamaDeployments can share."""

    api_version: Literal["slotune.dev/v1alpha1"] = API_VERSION
    """Version of this type."""
    kind: Literal["LlamaWorkload"] = "LlamaWorkload"
    """Name of this type."""
    metadata: ObjectMeta
    """Name, namespace and labels."""
    spec: LlamaWorkloadSpec
    """The traffic."""
    status: LlamaWorkloadStatus | None = None
    """What slotune found out; written by the operator."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="LlamaWorkload",
        plural="llamaworkloads",
        short_name="llw",
        namespaced=True,
        columns=(
            PrinterColumn("Rate", ".status.peakRequestRate"),
            PrinterColumn("Tokens-In", ".status.inputTokensMean"),
            PrinterColumn("Tokens-Out", ".spec.output.tokens", "integer"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
