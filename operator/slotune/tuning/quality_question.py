"""From ``slo.quality`` to the question that is asked about answers: the limits, the reference, what a result holds for.

Its digest leaves out all that answers do not depend on (the SLO, rates, how often is measured), so that a comparison is
made once per weights file, KV cache, engine, set of prompts and confidence, and outlives a changed promise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict

from slotune.api.manifests import Manifests
from slotune.api.quantities import parse_decimal
from slotune.api.v1alpha1.measurement import Measurement
from slotune.api.v1alpha1.slo import SLO
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Arrivals, Demand
from slotune.load.estimates import demand_identity
from slotune.quality.limits import Limits, QualitySettings, limits_of
from slotune.search.problem import QualityQuestion

__all__ = ["quality_question", "quality_settings"]

FORMAT = 1
"""Part of the digest: comparisons of a slotune that compared differently are not reused."""


def _limits_of(slo: SLO) -> Limits | None:
    """The limits that ``slo`` sets; None when nobody looks at answers."""
    if slo.quality is None:
        return None
    stated, field = slo.quality_limits, "spec.slo.qualityLimits"
    if stated is None:
        return limits_of(slo.quality)
    return limits_of(
        slo.quality,
        mean_kld_max=float(parse_decimal(stated.mean_kld, f"{field}.meanKLD")),
        top1_min=float(parse_decimal(stated.top1_percent, f"{field}.top1Percent")) / 100,
    )


def quality_settings(stated: Measurement) -> QualitySettings:
    """How much a comparison looks at, and how sure its bounds are, of a LlamaDeployment or a LlamaTrial."""
    return QualitySettings(
        prompts=stated.quality_prompts,
        steps=stated.quality_steps,
        confidence=float(parse_decimal(stated.confidence, "spec.measurement.confidence")),
    )


def quality_question(
    manifests: Manifests, models: Mapping[str, ModelFacts], demand: Demand, engine: str
) -> QualityQuestion | None:
    """What is asked about answers; None when nothing is.

    The reference is the model that is marked, else the one with the most bits per weight (of equals the first).
    """
    limits = _limits_of(manifests.deployment.spec.slo)
    if limits is None:
        return None
    stated = manifests.deployment.spec.models
    drafts = {model.draft for model in stated}
    listed = [model for model in stated if model.name in models and model.name not in drafts]
    marked = next((model.name for model in listed if model.reference), None)
    reference = marked or max(listed, key=lambda model: models[model.name].bits_per_weight).name
    settings = quality_settings(manifests.deployment.spec.measurement)
    said = {
        "format": FORMAT,
        "reference": models[reference].identity,
        "prompts": _prompts_digest(demand),
        "settings": asdict(settings),
        "engine": engine,
    }
    context = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
    return QualityQuestion(limits, reference, settings, context)


def _prompts_digest(demand: Demand) -> str:
    """Digest of what is asked, whatever comes when and however long the answers may get."""
    return demand_identity(
        Demand(
            peak_rate=1.0,
            output_tokens=1,
            arrivals=Arrivals(input_tokens=demand.arrivals.input_tokens),
            synthetic=demand.synthetic,
            prompts=demand.prompts,
        )
    )
