"""What is owed to users, and with which weights files it may be kept."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from slotune.api import quantities
from slotune.api.forms import Form
from slotune.api.model import Model
from slotune.api.quantities import parse_decimal, parse_duration
from slotune.api.rules import Rule, holds
from slotune.api.texts import FilePath, Label, Name, PositiveDecimal, PositiveDuration

__all__ = ["SLO", "GPUClassReference", "ModelVariant", "Quality", "QualityLimits"]

Quality = Literal["Strict", "Balanced", "Custom", "Off"]

MeanKLD = Annotated[
    str,
    Form(
        quantities.DECIMAL_PATTERN,
        'a number of nats is needed, in quotes, such as "0.03"',
        20,
        accepts=lambda text: 0 < float(text) <= 10,
        cel="double(self) > 0.0 && double(self) <= 10.0",
        refusal="must be more than 0 and at most 10 nats; Strict has 0.01, Balanced 0.05",
    ),
]
Top1Percent = Annotated[
    str,
    Form(
        quantities.DECIMAL_PATTERN,
        'a percentage without a sign is needed, in quotes, such as "92"',
        8,
        accepts=lambda text: 0 < float(text) < 100,
        cel="double(self) > 0.0 && double(self) < 100.0",
        refusal="must be more than 0 and below 100; Strict has 95, Balanced 90",
    ),
]


class QualityLimits(Model):
    """Limits of one's own for how much the answers may differ from those of the reference. Both must be shown to
    hold."""

    mean_kld: Annotated[MeanKLD, Field(alias="meanKLD")]
    """Largest mean KL divergence per token, in nats, e.g. "0.03"."""
    top1_percent: Top1Percent
    """Least share of steps in which the first choice is the same, in percent, e.g. "92"."""


class SLO(Model):
    """What is owed to users. A request is a violation when it is late, too slow, failed, truncated or unfinished. At
    most 5 % of all requests may be one."""

    ttft_p95: PositiveDuration
    """Most time from the scheduled moment of a request to its first generated token, for 95 % of requests, e.g. "1s".
    Waiting for a slot is part of it."""
    tokens_per_second_per_user: PositiveDecimal | None = None
    """Least tokens per second that 95 % of users see once their answer has begun, e.g. "30". Nothing is owed when
    absent."""
    quality: Quality | None = None
    """How much the answers may differ from those of the reference. Strict: mean KL divergence up to 0.01 and the same
    first choice in 95 % of steps. Balanced: up to 0.05 and 90 %. Custom: as qualityLimits says. "Off" (in quotes:
    without them YAML reads false): not looked at. Required when more than one model or a quantized KV cache is offered.
    When absent, nothing that changes answers is tried."""
    quality_limits: QualityLimits | None = None
    """Limits of one's own; together with quality: Custom."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            lambda it: it.quality != "Custom" or it.quality_limits is not None,
            'quality: Custom needs limits: set qualityLimits, such as {meanKLD: "0.03", top1Percent: "92"}',
            ("quality", "quality_limits"),
            "!has(self.quality) || self.quality != 'Custom' || has(self.qualityLimits)",
            at="qualityLimits",
        ),
        holds(
            lambda it: it.quality_limits is None or it.quality == "Custom",
            "only quality: Custom has limits of its own: set it, or remove qualityLimits",
            ("quality", "quality_limits"),
            "!has(self.qualityLimits) || (has(self.quality) && self.quality == 'Custom')",
            at="qualityLimits",
        ),
    )

    @property
    def ttft_p95_seconds(self) -> Decimal:
        """``ttftP95`` in seconds."""
        return parse_duration(self.ttft_p95, "spec.slo.ttftP95")

    @property
    def tokens_per_second(self) -> Decimal | None:
        """``tokensPerSecondPerUser`` as an exact number; None when no speed is owed."""
        owed = self.tokens_per_second_per_user
        return None if owed is None else parse_decimal(owed, "spec.slo.tokensPerSecondPerUser")


class ModelVariant(Model):
    """A weights file that answers may come from."""

    name: Label
    """How reports call it, e.g. Q4_K_M."""
    quantization: Label | None = None
    """What the file says about itself, as a label for people; slotune reads the truth from the file."""
    path: FilePath
    """Path of the GGUF file inside the server's container. Several parts: the first one."""
    reference: bool = False
    """Whether the quality of all others is measured against this one. When none is marked, the least quantized file is
    the reference."""
    draft: Label | None = None
    """Name of another entry whose model guesses tokens ahead for this one: a much smaller model with the same
    vocabulary. It is tried with search.space.speculation: [draft-simple], and gives no answers itself."""


class GPUClassReference(Model):
    """A GPUClass that may be used."""

    name: Name
    """Name of the GPUClass."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Most replicas on this class; search.maxReplicas when absent."""
