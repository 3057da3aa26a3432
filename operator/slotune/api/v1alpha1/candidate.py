"""A candidate as the API writes it, and the numbers that people look at first."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slotune.api.forms import Form, Items, Properties
from slotune.api.model import Model, StatusModel
from slotune.api.texts import Digest, Duration, Identifier, Label, Name, Number, Reason, Sentence, ShortText
from slotune.api.v1alpha1.rollout import CandidateHash

__all__ = [
    "CandidateSettings",
    "Configuration",
    "Environment",
    "Explanation",
    "FlashAttention",
    "KVCacheType",
    "Measured",
    "QualityResult",
]

FlashAttention = Literal["Enabled", "Disabled", "Auto"]
"""Not llama-server's own on and off: without quotes YAML would read them as booleans."""

GPULayers = Annotated[str, Form(r"^(all|auto|[0-9]{1,6})$", "a number, all or auto is needed", 8)]
SpeculationTypes = Annotated[
    str, Form(r"^[a-z0-9,-]+$", "types of llama-server are needed, such as none or ngram-mod", 128)
]

KVCacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
"""All that llama-server takes: what runs today may be any of them."""


class CandidateSettings(Model):
    """One full set of llama-server's settings on one weights file and one GPU class. Nothing is left to defaults."""

    model: Label
    """Name of the model variant, from spec.models of the LlamaDeployment."""
    gpu_class: Name
    """Name of the GPUClass."""
    parallel_slots: Annotated[int, Field(ge=1, le=256)]
    """Requests that are decoded at the same time (--parallel)."""
    context_size_per_slot: Annotated[int, Field(ge=1, le=16_777_216)]
    """Tokens that one request may use; --ctx-size is this times the slots."""
    kv_unified: bool
    """One KV pool for all slots (true), or one stream per slot (false)."""
    batch_size: Annotated[int, Field(ge=1, le=1_048_576)]
    """Most prompt tokens per scheduler step (--batch-size)."""
    u_batch_size: Annotated[int, Field(ge=1, le=1_048_576)]
    """Physical batch (--ubatch-size)."""
    flash_attention: FlashAttention
    """Fused attention (--flash-attn)."""
    cache_type_k: KVCacheType
    """Type of the keys in the KV cache (--cache-type-k)."""
    cache_type_v: KVCacheType
    """Type of the values in the KV cache (--cache-type-v)."""
    cache_prompt: bool
    """Whether a slot reuses the common prefix of its last prompt (--cache-prompt)."""
    cache_ram_mib: Annotated[int, Field(ge=-1, le=16_777_216, alias="cacheRAMMiB")]
    """Prompt cache in host memory, in MiB; 0 is off, -1 has no limit (--cache-ram)."""
    cache_idle_slots: bool
    """Whether idle slots are saved to the prompt cache on every new request (--cache-idle-slots)."""
    cache_reuse: Annotated[int, Field(ge=0, le=1_048_576)]
    """Shortest chunk, in tokens, that is reused after a changed prefix; 0 is off (--cache-reuse)."""
    gpu_layers: GPULayers
    """Layers on the GPU: a number, auto or all (--gpu-layers)."""
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    """CPU threads (--threads); the container's CPU limit when absent."""
    speculation: SpeculationTypes
    """Way to guess tokens ahead (--spec-type); none is off."""
    speculation_tokens: Annotated[int, Field(ge=0, le=1_048_576)] | None = None
    """Most tokens that are guessed at a time; the build's own number when absent."""
    speculation_match: Annotated[int, Field(ge=0, le=1_048_576)] | None = None
    """Tokens that must repeat before n-gram speculation guesses; the build's own number when absent."""
    draft: Label | None = None
    """Name of the model variant that drafts (--spec-draft-model); none when absent."""
    backend_sampling: bool = False
    """Whether tokens are sampled where the model runs (--backend-sampling)."""
    extra_args: Annotated[tuple[Annotated[str, Field(max_length=32_768)], ...], Items(most=256)] = ()
    """Flags of the user's own server that slotune does not tune, passed on as they are."""


class Measured(StatusModel):
    """What users saw in a measurement."""

    ttft_p95: Duration | None = None
    """Time to the first token that 95 % of requests kept, e.g. "620ms"."""
    ttft_p95_upper: Duration | None = None
    """The same, with the measurement's confidence that it is not more."""
    tokens_per_second_p5: Number | None = None
    """Tokens per second that 95 % of users saw at least."""
    request_rate: Number | None = None
    """Requests per second at one replica."""
    requests: Annotated[int, Field(ge=0)] | None = None
    """Requests that counted."""
    violations: Annotated[int, Field(ge=0)] | None = None
    """Requests that broke the SLO."""
    confidence: Number | None = None
    """How sure the verdict is."""


class QualityResult(StatusModel):
    """How much answers differ from those of the reference. It gates and does not rank."""

    preset: Literal["Strict", "Balanced", "Custom", "Off"] | None = None
    """What was asked for."""
    held: bool | None = None
    """Whether the answers hold; absent when it was not looked at, or could not be decided."""
    mean_kld: Annotated[Number | None, Field(alias="meanKLD")] = None
    """Mean KL divergence per token, a lower bound from the likeliest tokens."""
    mean_kld_upper: Annotated[Number | None, Field(alias="meanKLDUpper")] = None
    """The same, with the confidence that it is not more."""
    top1_percent: Number | None = None
    """Steps in which the first choice is the same, in percent."""
    top1_percent_lower: Number | None = None
    """The same, with the confidence that it is not less."""


class Configuration(StatusModel):
    """A candidate with the replicas that it needs, and what was measured."""

    candidate_hash: CandidateHash
    """Names the candidate; approvedCandidate takes it."""
    candidate: CandidateSettings
    """Its settings."""
    gpu_class: Name
    """GPUClass that it runs on."""
    replicas: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Replicas that carry the whole load."""
    monthly_cost: Number | None = None
    """Replicas x price per hour x 730 hours."""
    currency: Annotated[str, Field(max_length=3)] | None = None
    """Currency of the costs."""
    cost_per_million_output_tokens: Number | None = None
    """At the peak rate."""
    headroom: Number | None = None
    """Rate that it passed at over the rate that it is owed; 1 or more."""
    measured: Measured | None = None
    """What users saw."""
    quality: QualityResult | None = None
    """How much answers differ from those of the reference."""
    trial: Name | None = None
    """LlamaTrial that measured it."""


class Environment(StatusModel):
    """What a measurement is true for. Results are only compared when all of it is equal."""

    engine: ShortText | None = None
    """Build of llama.cpp."""
    image: Annotated[str, Field(max_length=1024)] | None = None
    """Image of the server, by digest."""
    gpu: ShortText | None = None
    """Product name of the GPU."""
    driver: ShortText | None = None
    """Version of its driver."""
    node: Name | None = None
    """Node that the measurement ran on."""
    models: Annotated[dict[str, Annotated[str, Field(max_length=128)]], Properties(16)] = Field(default_factory=dict)
    """Digest of each weights file, by the name of the variant."""
    workload_digest: Digest | None = None
    """Digest of the traffic, prompts included."""
    slotune: ShortText | None = None
    """Version of slotune."""


class Explanation(StatusModel):
    """A code for machines and a sentence for people."""

    code: Reason
    """CamelCase word."""
    message: Sentence = ""
    """The same in words."""
    finding: Identifier | None = None
    """Entry of docs/diagnosis.md that says more, e.g. SLT050."""
