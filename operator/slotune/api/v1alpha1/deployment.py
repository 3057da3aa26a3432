"""LlamaDeployment: what is owed, to which traffic, with what it may be kept. The one object that a user writes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from slotune.api.forms import Items
from slotune.api.kubernetes_types import ObjectMeta, PodTemplate
from slotune.api.model import Model
from slotune.api.rules import Rule, exactly_one_of
from slotune.api.texts import Label, Name
from slotune.api.v1alpha1.deployment_rules import DEPLOYMENT_RULES, SHORT_NAME
from slotune.api.v1alpha1.deployment_status import LlamaDeploymentStatus
from slotune.api.v1alpha1.measurement import Measurement
from slotune.api.v1alpha1.meta import API_VERSION, KindInfo, NameReference, PrinterColumn, Resource
from slotune.api.v1alpha1.rollout import Observe, Rerun, Retune, Rollout
from slotune.api.v1alpha1.sandbox import Sandbox
from slotune.api.v1alpha1.search import Search
from slotune.api.v1alpha1.slo import SLO, GPUClassReference, ModelVariant
from slotune.api.v1alpha1.workload import LlamaWorkloadSpec

__all__ = ["LlamaDeployment", "LlamaDeploymentSpec", "TargetReference", "Workload"]


class Workload(Model):
    """The traffic that it is owed to. Exactly one field."""

    ref: NameReference | None = None
    """A LlamaWorkload of the same namespace."""
    inline: LlamaWorkloadSpec | None = None
    """The traffic itself, with the fields of a LlamaWorkload's spec."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one_of(
            "ref",
            "inline",
            message="exactly one of ref (a LlamaWorkload) and inline (the traffic itself) is needed",
        ),
    )


class TargetReference(Model):
    """An existing Deployment of the same namespace."""

    api_version: Literal["apps/v1"] = "apps/v1"
    """Version of the type."""
    kind: Literal["Deployment"] = "Deployment"
    """Name of the type."""
    name: Name
    """Name of the Deployment."""


class LlamaDeploymentSpec(Model):
    """What is owed, to which traffic, and with what it may be kept."""

    suspend: bool = False
    """Stops everything: no trial is started, running ones are ended, production stays as it is."""
    slo: SLO
    """What is owed to users."""
    workload: Workload
    """The traffic that it is owed to."""
    models: Annotated[tuple[ModelVariant, ...], Items(most=16, least=1, key="name")]
    """Weights files that may be used, the one of today among them."""
    template: PodTemplate | None = None
    """Pod of the server as it runs today. slotune owns a Deployment and a Service made from it. The flags of
    llama-server in it are the baseline; everything else is kept in every candidate."""
    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many such pods run today, for template; 1 when absent."""
    target_ref: TargetReference | None = None
    """An existing Deployment that is the baseline. slotune writes to it only as rollout.mode allows."""
    container: Label | None = None
    """Name of the container that is llama-server; needed when the pod has several."""
    gpu_classes: Annotated[tuple[GPUClassReference, ...], Items(most=8, least=1, key="name")]
    """GPU classes that may be used. The first is the one of today."""
    search: Search = Search()
    """What may be tried, and how much may be spent on it."""
    measurement: Measurement = Measurement()
    """How much evidence a verdict takes."""
    sandbox: Sandbox = Sandbox()
    """Where trials run."""
    rollout: Rollout = Rollout()
    """How the answer reaches production."""
    retune: Retune = Retune()
    """When the answer is looked for again."""
    observe: Observe = Observe()
    """How production is watched."""
    rerun: Rerun | None = None
    """Asks for a new search."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one_of(
            "template",
            "target_ref",
            message="exactly one of template (slotune owns the server) and targetRef (a Deployment that exists) is "
            "needed",
        ),
        *DEPLOYMENT_RULES,
    )

    def max_replicas(self, gpu_class: str) -> int:
        """Most replicas on a class of :attr:`gpu_classes`. A class that is not there is a :class:`KeyError`."""
        limits = {reference.name: reference.max_replicas for reference in self.gpu_classes}
        return limits[gpu_class] or self.search.max_replicas


class LlamaDeployment(Resource):
    """A llama.cpp server with a promise to its users. slotune finds the cheapest configuration that was measured to
    keep it."""

    api_version: Literal["slotune.dev/v1alpha1"] = API_VERSION
    """Version of this type."""
    kind: Literal["LlamaDeployment"] = "LlamaDeployment"
    """Name of this type."""
    metadata: ObjectMeta
    """Name, namespace and labels."""
    spec: LlamaDeploymentSpec
    """What is owed, to which traffic, and with what it may be kept."""
    status: LlamaDeploymentStatus | None = None
    """What is known about it; written by the operator."""

    RULES: ClassVar[tuple[Rule, ...]] = (SHORT_NAME,)

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="LlamaDeployment",
        plural="llamadeployments",
        short_name="lld",
        namespaced=True,
        columns=(
            PrinterColumn("GPU", ".status.recommendation.gpuClass"),
            PrinterColumn("Replicas", ".status.recommendation.replicas", "integer"),
            PrinterColumn("TTFT-p95", ".status.recommendation.measured.ttftP95"),
            PrinterColumn("Tok/s", ".status.recommendation.measured.tokensPerSecondP5"),
            PrinterColumn("$/month", ".status.recommendation.monthlyCost"),
            PrinterColumn("SLO", '.status.conditions[?(@.type=="SLOMet")].status'),
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Mode", ".spec.rollout.mode", priority=1),
            PrinterColumn("Candidate", ".status.recommendation.candidateHash", priority=1),
            PrinterColumn("Trials", ".status.progress.trials", "integer", priority=1),
            PrinterColumn("GPU-min", ".status.progress.gpuMinutesUsed", priority=1),
            PrinterColumn("Binding", ".status.bindingConstraint.code", priority=1),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
        frozen=frozenset({"spec.rollout.mode"}),
    )
