"""A LlamaDeployment with everything that it refers to. Pure: the documents are read already."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slotune.api.documents import Document
from slotune.api.inventory import Entry, Inventory, check, problem_at
from slotune.api.kubernetes_types import AppsDeployment, ConfigMap, Container, PodTemplate, Secret
from slotune.api.problems import Location, Problem, closest
from slotune.api.server_container import server_container
from slotune.api.v1alpha1 import (
    GPUClass,
    KeyReference,
    LlamaDeployment,
    LlamaWorkload,
    LlamaWorkloadSpec,
    Prompts,
    Trace,
)

__all__ = ["Manifests", "resolve"]


@dataclass(frozen=True, slots=True)
class Manifests:
    """One LlamaDeployment and what it refers to, checked. Prompts and secrets are not part of its representation."""

    deployment: LlamaDeployment
    workload: LlamaWorkloadSpec
    """The traffic, whether it was inline or referred to."""
    gpu_classes: Mapping[str, GPUClass]
    """By name, in the order of ``spec.gpuClasses``."""
    template: PodTemplate
    """Pod of the server as it runs today: ``spec.template``, or that of the Deployment which ``targetRef`` names."""
    container: Container
    """The container of ``template`` that is llama-server."""
    replicas: int
    """How many such pods run today."""
    directory: Path
    """Where a relative path of a prompt or trace file starts: the folder of the document that says it."""
    prompts: bytes | None = field(default=None, repr=False)
    """JSON Lines from the ConfigMap or Secret that ``workload.prompts`` names; None when it names none."""
    trace: bytes | None = field(default=None, repr=False)
    """JSON Lines from the ConfigMap that ``workload.load.trace`` names; None when it names none."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Text of every valid ConfigMap by name and key: the server's environment may come from them."""
    notes: tuple[str, ...] = ()
    """What was ignored, in words."""


def resolve(
    entry: Entry, inventory: Inventory, directories: Mapping[str, Path], problems: list[Problem]
) -> Manifests | None:
    """Follows every reference of a LlamaDeployment. ``directories`` has the folder of each file.

    What is missing or wrong is added to ``problems``, and then there is no result.
    """
    deployment = entry.model
    if not isinstance(deployment, LlamaDeployment):
        return None
    lookup = _Lookup(inventory, problems, entry.namespace)
    classes = _gpu_classes(lookup, entry.document, deployment)
    server = _server(lookup, entry.document, deployment)
    traffic = _traffic(lookup, entry.document, deployment)
    if traffic is None:
        return None
    prompts = traffic.content(lookup, ("prompts",), traffic.spec.prompts)
    trace = traffic.content(lookup, ("load", "trace"), traffic.spec.load.trace)
    if problems or server is None:
        return None
    return Manifests(
        deployment=deployment,
        workload=traffic.spec,
        gpu_classes=classes,
        template=server.template,
        container=server.container,
        replicas=server.replicas,
        directory=directories[traffic.document.file],
        prompts=prompts,
        trace=trace,
        config_maps=_config_maps(inventory),
        notes=(*inventory.notes, *server.notes),
    )


@dataclass(slots=True)
class _Lookup:
    """Follows references of one LlamaDeployment; a missing one is a problem at the field that refers."""

    inventory: Inventory
    problems: list[Problem]
    namespace: str | None

    def find(self, kind: str, name: str, document: Document, location: Location) -> Entry | None:
        entry = self.inventory.named(kind, name, None if kind == "GPUClass" else self.namespace)
        if entry is None:
            names = [other.name for other in self.inventory.of(kind) if other.name]
            self.miss(document, location, name, f"there is no such {kind} in the files: add it", names)
        return entry

    def miss(self, document: Document, location: Location, name: str, cure: str, others: Iterable[str]) -> None:
        names = list(others)
        meant = closest(name, names)
        hint = f", or did you mean {meant}?" if meant else f" (there are: {', '.join(names)})" if names else ""
        self.problems.append(problem_at(document, location, cure + hint, name))


@dataclass(frozen=True, slots=True)
class _Server:
    template: PodTemplate
    container: Container
    replicas: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Traffic:
    """A workload's spec and where it is written."""

    spec: LlamaWorkloadSpec
    document: Document
    location: Location

    def content(self, lookup: _Lookup, place: Location, source: Prompts | Trace | None) -> bytes | None:
        """What a ConfigMap or Secret holds under the key that is referred to; None when none is referred to."""
        if source is None:
            return None
        secret = source.secret_key_ref if isinstance(source, Prompts) else None
        if secret is not None:
            where = (*self.location, *place, "secretKeyRef")
            return _value(lookup, "Secret", secret, self.document, where)
        if source.config_map_key_ref is not None:
            where = (*self.location, *place, "configMapKeyRef")
            return _value(lookup, "ConfigMap", source.config_map_key_ref, self.document, where)
        return None


def _gpu_classes(lookup: _Lookup, document: Document, deployment: LlamaDeployment) -> dict[str, GPUClass]:
    classes: dict[str, GPUClass] = {}
    for index, reference in enumerate(deployment.spec.gpu_classes):
        location: Location = ("spec", "gpuClasses", index, "name")
        entry = lookup.find("GPUClass", reference.name, document, location)
        if entry is None or not isinstance(entry.model, GPUClass):
            continue
        first = next(iter(classes.values()), entry.model)
        if entry.model.spec.currency != first.spec.currency:
            cure = (
                f"its price is in {entry.model.spec.currency}, that of {first.metadata.name} in {first.spec.currency}: "
                "prices are compared, so write them in one currency"
            )
            lookup.problems.append(problem_at(document, location, cure, reference.name))
        classes[reference.name] = entry.model
    return classes


def _server(lookup: _Lookup, document: Document, deployment: LlamaDeployment) -> _Server | None:
    spec = deployment.spec
    if spec.template is not None:
        container = spec.template.container(spec.container)
        assert container is not None, "a rule of the spec"
        return _Server(spec.template, container, spec.replicas or 1)
    assert spec.target_ref is not None, "a rule of the spec"
    entry = lookup.find("Deployment", spec.target_ref.name, document, ("spec", "targetRef", "name"))
    target = None if entry is None else check(entry.document, AppsDeployment, lookup.problems)
    if entry is None or target is None:
        return None
    container = server_container(target.spec.template, spec.container)
    if container is None:
        names = ", ".join(container.name for container in target.spec.template.spec.containers)
        cure = f"must be the container of Deployment {entry.name} that is llama-server: one of {names}"
        lookup.problems.append(problem_at(document, ("spec", "container"), cure, spec.container))
        return None
    if target.spec.replicas == 0:
        cure = "nothing runs that could be the baseline: start it, or describe the server in spec.template instead"
        lookup.problems.append(problem_at(entry.document, ("spec", "replicas"), cure, "0"))
        return None
    notes = (f"container {container.name} is taken for llama-server; spec.container can name another",)
    guessed = spec.container is None and len(target.spec.template.spec.containers) > 1
    return _Server(target.spec.template, container, target.spec.replicas, notes if guessed else ())


def _traffic(lookup: _Lookup, document: Document, deployment: LlamaDeployment) -> _Traffic | None:
    workload = deployment.spec.workload
    if workload.inline is not None:
        return _Traffic(workload.inline, document, ("spec", "workload", "inline"))
    assert workload.ref is not None, "a rule of the spec"
    entry = lookup.find("LlamaWorkload", workload.ref.name, document, ("spec", "workload", "ref", "name"))
    if entry is None or not isinstance(entry.model, LlamaWorkload):
        return None
    return _Traffic(entry.model.spec, entry.document, ("spec",))


def _value(
    lookup: _Lookup,
    kind: Literal["ConfigMap", "Secret"],
    reference: KeyReference,
    document: Document,
    location: Location,
) -> bytes | None:
    entry = lookup.find(kind, reference.name, document, (*location, "name"))
    if entry is None:
        return None
    holder = _holder(entry, kind, lookup.problems)
    if holder is None:
        return None
    text, encoded = _texts_and_encoded(holder)
    if reference.key in text:
        return text[reference.key].encode()
    if reference.key not in encoded:
        cure = f"there is no such key in {kind} {reference.name}: add it"
        lookup.miss(document, (*location, "key"), reference.key, cure, sorted({*text, *encoded}))
        return None
    try:
        return base64.b64decode("".join(encoded[reference.key].split()), validate=True)
    except (binascii.Error, ValueError):
        where = ("data" if kind == "Secret" else "binaryData", reference.key)
        cure = "is not Base64" + (": encode it, or put the plain text below stringData" if kind == "Secret" else "")
        lookup.problems.append(problem_at(entry.document, where, cure))
        return None


def _holder(entry: Entry, kind: Literal["ConfigMap", "Secret"], problems: list[Problem]) -> ConfigMap | Secret | None:
    if kind == "ConfigMap":
        return check(entry.document, ConfigMap, problems)
    return check(entry.document, Secret, problems)


def _texts_and_encoded(holder: ConfigMap | Secret) -> tuple[dict[str, str], dict[str, str]]:
    if isinstance(holder, ConfigMap):
        return holder.data, holder.binary_data
    return holder.string_data, holder.data


def _config_maps(inventory: Inventory) -> dict[str, Mapping[str, str]]:
    """Those that nothing refers to may be broken without anybody caring."""
    ignored: list[Problem] = []
    found = ((entry.name, check(entry.document, ConfigMap, ignored)) for entry in inventory.of("ConfigMap"))
    return {name: config_map.data for name, config_map in found if config_map is not None}
