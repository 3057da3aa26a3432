"""The little of Kubernetes' own types that slotune reads. Everything else in them is kept as it is."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from slotune.api.forms import Items, Properties
from slotune.api.model import Model, OpenModel, StatusModel
from slotune.api.rules import Rule, holds
from slotune.api.texts import Label, Name, Reason, Sentence, ShortText, Timestamp

__all__ = [
    "AppsDeployment",
    "AppsDeploymentSpec",
    "Condition",
    "ConfigMap",
    "Container",
    "EnvVar",
    "ObjectMeta",
    "PodSpec",
    "PodTemplate",
    "Secret",
    "Toleration",
]


class ObjectMeta(OpenModel):
    """Metadata of an object, as far as slotune reads it."""

    name: Name
    """Name of the object."""
    namespace: Name | None = None
    """Namespace of the object; absent in a file that leaves it to the command that applies it."""
    uid: ShortText | None = None
    """Identity that the API server gave."""
    generation: Annotated[int, Field(ge=0)] | None = None
    """Counts the versions of the spec."""
    labels: dict[str, str] | None = None
    """Labels of the object."""
    annotations: dict[str, str] | None = None
    """Annotations of the object."""


class Condition(StatusModel):
    """One observation about an object, in the shape of every Kubernetes condition."""

    type: Reason
    """What is observed, e.g. Ready or SLOMet."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is so."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Version of the spec that this was observed for."""
    last_transition_time: Timestamp
    """When the status last changed."""
    reason: Reason
    """Why, as a word for machines."""
    message: Sentence = ""
    """Why, in words for people."""


class Toleration(Model):
    """A taint that pods may be placed on in spite of."""

    key: Annotated[str, Field(max_length=317)] | None = None
    """Key of the taint; absent with operator Exists to tolerate every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """How key and value are compared; Equal when absent."""
    value: Label | None = None
    """Value of the taint, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect that is tolerated; every effect when absent."""
    toleration_seconds: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Seconds that a pod stays after the taint comes, for effect NoExecute; for ever when absent."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            lambda it: it.operator != "Exists" or it.value is None,
            "operator Exists looks at no value: remove value",
            ("operator", "value"),
            "!has(self.operator) || self.operator != 'Exists' || !has(self.value)",
            at="value",
        ),
        holds(
            lambda it: it.operator == "Exists" or it.key is not None,
            "a toleration without key tolerates every taint and needs operator Exists",
            ("operator", "key"),
            "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            at="operator",
        ),
    )


class EnvVar(OpenModel):
    """An environment variable of a container."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=131072)] | None = Field(None, repr=False)
    """Its value, when it is written here and not taken from elsewhere (valueFrom)."""


class Container(OpenModel):
    """A container of the user's pod."""

    name: Label
    """Name of the container, unique in its pod."""
    image: Annotated[str, Field(max_length=1024)] | None = None
    """Image that it runs."""
    command: Annotated[tuple[Annotated[str, Field(max_length=32768)], ...], Items(most=512)] | None = None
    """Replaces the image's entry point."""
    args: Annotated[tuple[Annotated[str, Field(max_length=32768)], ...], Items(most=512)] | None = None
    """Arguments: where the flags of llama-server usually stand."""
    env: Annotated[tuple[EnvVar, ...], Items(most=256)] | None = None
    """Environment: LLAMA_ARG_... variables are flags of llama-server too."""


class PodSpec(OpenModel):
    """What a pod runs."""

    containers: Annotated[tuple[Container, ...], Items(most=16, least=1, key="name")]
    """Containers of the pod; one of them is llama-server."""


class PodTemplate(OpenModel):
    """A pod template of Kubernetes. slotune reads the containers and keeps every other field as it is."""

    metadata: dict[str, Any] | None = Field(None, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    """Labels and annotations of the pods."""
    spec: PodSpec
    """What the pods run."""

    def container(self, name: str | None) -> Container | None:
        """The container of that name; without a name, the only one. None when there is no such one."""
        containers = self.spec.containers
        if name is None:
            return containers[0] if len(containers) == 1 else None
        return next((container for container in containers if container.name == name), None)


class AppsDeploymentSpec(OpenModel):
    """Spec of a Deployment."""

    replicas: Annotated[int, Field(ge=0)] = 1
    """Pods that it keeps."""
    template: PodTemplate
    """The pods."""


class AppsDeployment(OpenModel):
    """A Deployment that already exists: what a targetRef names."""

    api_version: Literal["apps/v1"] = "apps/v1"
    """Version of the type."""
    kind: Literal["Deployment"] = "Deployment"
    """Name of the type."""
    metadata: ObjectMeta
    """Name and namespace."""
    spec: AppsDeploymentSpec
    """What it keeps running."""


class ConfigMap(OpenModel):
    """Plain data by key."""

    metadata: ObjectMeta
    """Name and namespace."""
    data: Annotated[dict[str, str], Properties(4096)] = Field(default_factory=dict, repr=False)
    """Text by key."""
    binary_data: Annotated[dict[str, str], Properties(4096)] = Field(default_factory=dict, repr=False)
    """Bytes by key, in Base64."""


class Secret(OpenModel):
    """Data that must not be shown, by key."""

    metadata: ObjectMeta
    """Name and namespace."""
    data: Annotated[dict[str, str], Properties(4096)] = Field(default_factory=dict, repr=False)
    """Bytes by key, in Base64."""
    string_data: Annotated[dict[str, str], Properties(4096)] = Field(default_factory=dict, repr=False)
    """Text by key; wins over data."""
