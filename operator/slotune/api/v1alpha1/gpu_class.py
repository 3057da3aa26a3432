"""What a node with a GPU is and costs. The platform team writes it once, like a StorageClass."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from slotune.api.forms import Form, Items, Properties
from slotune.api.kubernetes_types import ObjectMeta, Toleration
from slotune.api.model import Model
from slotune.api.quantities import parse_bytes, parse_decimal, parse_quantity
from slotune.api.texts import PositiveBytes, PositiveDecimal, PositiveQuantity
from slotune.api.v1alpha1.meta import API_VERSION, CommonStatus, KindInfo, PrinterColumn, Resource

__all__ = ["GPUClass", "GPUClassSpec", "GPUClassStatus"]

Currency = Annotated[str, Form(r"^[A-Z]{3}$", "three capital letters are needed, such as USD or EUR", 3)]
ResourceName = Annotated[
    str,
    Form(
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        "an extended resource is needed, such as nvidia.com/gpu",
        317,
    ),
]


class GPUClassSpec(Model):
    """What a node with a GPU is and costs."""

    price_per_hour: PositiveDecimal
    """Price of one GPU with its share of the node, per hour, e.g. "0.80". For a machine that you own: what it costs in
    its life, power included, over the hours of that life. It can't be 0: every answer would cost the same."""
    currency: Currency = "USD"
    """Currency of the price (ISO 4217). Classes that one LlamaDeployment compares must have the same one."""
    memory: PositiveBytes | None = None
    """Memory of the GPU, e.g. "24Gi": candidates that can't fit are never started. Absent: nothing is ruled out."""
    memory_bandwidth: PositiveQuantity | None = None
    """Peak memory bandwidth in bytes per second, e.g. "300G": candidates that can't be fast enough are never started.
    Absent: nothing is ruled out."""
    resource_name: ResourceName | None = None
    """Extended resource that a pod asks for, e.g. nvidia.com/gpu; absent for nodes that compute on the CPU."""
    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Properties(16)] = Field(
        default_factory=dict
    )
    """Labels of the nodes, e.g. nvidia.com/gpu.product: NVIDIA-L4."""
    tolerations: Annotated[tuple[Toleration, ...], Items(most=16)] = ()
    """Taints of the nodes that a trial may be placed on in spite of."""

    @property
    def price(self) -> Decimal:
        """``pricePerHour`` as an exact number."""
        return parse_decimal(self.price_per_hour, "spec.pricePerHour")

    @property
    def memory_bytes(self) -> int | None:
        """``memory`` in bytes; None when it is not stated."""
        return None if self.memory is None else parse_bytes(self.memory, "spec.memory")

    @property
    def bandwidth_bytes_per_second(self) -> Decimal | None:
        """``memoryBandwidth`` in bytes per second; None when it is not stated."""
        stated = self.memory_bandwidth
        return None if stated is None else parse_quantity(stated, "spec.memoryBandwidth")


class GPUClassStatus(CommonStatus):
    """Which nodes there are of the class."""

    nodes: Annotated[int, Field(ge=0)] | None = None
    """Nodes that match the selector."""
    gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs that these nodes offer."""


class GPUClass(Resource):
    """A class of nodes with a GPU: what it costs and how pods get onto it."""

    api_version: Literal["slotune.dev/v1alpha1"] = API_VERSION
    """Version of this type."""
    kind: Literal["GPUClass"] = "GPUClass"
    """Name of this type."""
    metadata: ObjectMeta
    """Name, namespace and labels."""
    spec: GPUClassSpec
    """What a node is and costs."""
    status: GPUClassStatus | None = None
    """Which nodes there are; written by the operator."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="GPUClass",
        plural="gpuclasses",
        short_name="gpc",
        namespaced=False,
        columns=(
            PrinterColumn("Price", ".spec.pricePerHour"),
            PrinterColumn("Currency", ".spec.currency"),
            PrinterColumn("Memory", ".spec.memory"),
            PrinterColumn("Resource", ".spec.resourceName"),
            PrinterColumn("Nodes", ".status.nodes", "integer"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
