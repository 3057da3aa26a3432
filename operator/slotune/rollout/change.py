"""The change that makes a user's server the measured candidate, made where each setting lives.

A person who keeps ``-np`` in ``args`` gets a new ``args``, one who keeps it in a variable gets that variable, and one
who keeps it in a ConfigMap gets a patch of that ConfigMap. What no one stated yet is added where the other flags are.
Flags that slotune does not tune stay as they are, word by word, and so do keys, of which no value is ever needed here.

The law that a test keeps: whoever reads the changed container again reads the candidate.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.api.yaml_dialect import write_documents
from slotune.llama.candidate import Candidate
from slotune.report.export import comment_header
from slotune.rollout.edits import Edit, edits_for
from slotune.tuning.baseline import REDACTED, Baseline
from slotune.tuning.pod_reading import read_pod

__all__ = ["CONFIGURATION_ANNOTATION", "Change", "ForeignCandidateError", "compose_change", "kustomize_files"]

CONFIGURATION_ANNOTATION: Final = "slotune.dev/configuration"
"""On the pods, when a ConfigMap changes: pods only start anew when their own template does."""


_USE: Final = (
    "To use it: put this folder beside your kustomization.yaml and name it there below components:,",
    "e.g. components: [slotune].",
)


class ForeignCandidateError(ValueError):
    """A candidate that was not made from the baseline: its untuned flags are others."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(
            f"extra_args are {candidate.extra_args} and not those of the server: make the candidate from its baseline"
        )


@dataclass(frozen=True, slots=True)
class Change:
    """What is written, and where."""

    container: str
    edits: tuple[Edit, ...]
    """One for each setting that is stated anew, in the order of a candidate's arguments."""
    command: tuple[str, ...] | None = field(default=None, repr=False)
    """The whole list; None: it stays."""
    args: tuple[str, ...] | None = field(default=None, repr=False)
    """The whole list; None: it stays."""
    public_command: tuple[str, ...] | None = None
    """The same without the keys that stand in it."""
    public_args: tuple[str, ...] | None = None
    """The same without the keys that stand in it."""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Variables of the container, by name."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    """Keys to set, by the ConfigMap's name."""

    @property
    def is_empty(self) -> bool:
        """Whether the server states the candidate already."""
        return not self.edits

    @property
    def writes_args(self) -> bool:
        """Whether ``command`` or ``args`` change."""
        return self.command is not None or self.args is not None

    @property
    def sentences(self) -> tuple[str, ...]:
        """For people: ``-np 4 → 16 in args``."""
        return tuple(str(edit) for edit in self.edits)

    @property
    def annotations(self) -> dict[str, str]:
        """Of the pods."""
        if not self.config_maps:
            return {}
        said = json.dumps({name: dict(data) for name, data in self.config_maps.items()}, sort_keys=True)
        return {CONFIGURATION_ANNOTATION: hashlib.sha256(said.encode()).hexdigest()[:10]}

    @property
    def hides_keys(self) -> bool:
        """Whether what is shown has placeholders where keys stand."""
        return (self.command, self.args) != (self.public_command, self.public_args)

    def container_patch(self, *, public: bool = False) -> dict[str, Any]:
        """The container as a strategic merge patch or server-side apply takes it: what stays is left out.

        ``public`` is for what people hand around: a placeholder stands where the lists hold a key.
        """
        patch: dict[str, Any] = {"name": self.container}
        command, args = (self.public_command, self.public_args) if public else (self.command, self.args)
        if command is not None:
            patch["command"] = list(command)
        if args is not None:
            patch["args"] = list(args)
        if self.env:
            patch["env"] = [{"name": name, "value": value} for name, value in self.env.items()]
        return patch

    def template_patch(self, *, public: bool = False) -> dict[str, Any]:
        """The same below ``spec.template`` of a Deployment."""
        metadata = {"metadata": {"annotations": self.annotations}} if self.annotations else {}
        return {**metadata, "spec": {"containers": [self.container_patch(public=public)]}}

    def patched_template(self, template: Mapping[str, Any]) -> dict[str, Any]:
        """A pod template with the change in it; the one that is given stays as it is.

        Raises :class:`KeyError` when it has no such container.
        """
        patched: dict[str, Any] = copy.deepcopy(dict(template))
        containers = [one for one in patched["spec"]["containers"] if one.get("name") == self.container]
        if not containers:
            raise KeyError(self.container)
        container = containers[0]
        if self.command is not None:
            container["command"] = list(self.command)
        if self.args is not None:
            container["args"] = list(self.args)
        for name, value in self.env.items():
            _set_variable(container, name, value)
        if self.annotations:
            metadata = patched.setdefault("metadata", {})
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **self.annotations}
        return patched

    def patched_config_maps(self, config_maps: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
        """Texts of ConfigMaps by name and key, with the change in them."""
        return {name: {**data, **self.config_maps.get(name, {})} for name, data in config_maps.items()}


def compose_change(
    template: PodTemplate,
    container: Container,
    baseline: Baseline,
    candidate: Candidate,
    *,
    config_maps: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    only_pod: bool = False,
) -> Change:
    """The change from what runs today to ``candidate``.

    Args:
        template: the pod that runs today.
        container: the one of it that is llama-server.
        baseline: what was read from it.
        candidate: made from the baseline: it has the same untuned flags.
        config_maps: text by key, by name: those that the baseline was read with.
        only_pod: leave ConfigMaps alone, which other pods may use too, and state in ``args`` what one of them says now:
            there it wins.

    Raises:
        ForeignCandidateError: ``candidate`` has other untuned flags than the server.
        KeyError: ``candidate`` is of a model variant, or has a draft model, that the baseline does not know.
    """
    if candidate.extra_args != baseline.candidate.extra_args:
        raise ForeignCandidateError(candidate)
    pod = read_pod(template, container, config_maps)
    drafts = edits_for(pod, baseline, candidate, only_pod=only_pod)
    command, args = drafts.command(), drafts.args()
    return Change(
        container.name,
        tuple(drafts.edits),
        None if command == (container.command or ()) else command,
        None if args == (container.args or ()) else args,
        None if command == (container.command or ()) else drafts.command(public=True),
        None if args == (container.args or ()) else drafts.args(public=True),
        MappingProxyType(drafts.env),
        MappingProxyType({name: MappingProxyType(data) for name, data in drafts.config_maps.items()}),
    )


def kustomize_files(
    change: Change,
    *,
    deployment: str,
    namespace: str | None = None,
    replicas: int | None = None,
    header: Sequence[str] = (),
) -> dict[str, str]:
    """A Kustomize component that makes the change, text by file name. No key stands in it.

    Args:
        change: what to write.
        deployment: name of the Deployment.
        namespace: of the Deployment and the ConfigMaps; None leaves it to the kustomization.
        replicas: how many pods; None leaves them alone, e.g. to an autoscaler.
        header: lines for people, at the top of the first file: why this change.
    """
    patches = dict(_patches(change, deployment, namespace, replicas))
    component = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        # By its target, since without one a patch has to state the same namespace as the object, or both none.
        "patches": [
            {"path": name, "target": {"kind": patch["kind"], "name": patch["metadata"]["name"]}}
            for name, patch in patches.items()
        ],
    }
    keys = (f"Put your own key where {REDACTED} stands, or better take it from a Secret.",) if change.hides_keys else ()
    shared = [f"ConfigMap {name} may serve other pods too: look before it is applied." for name in change.config_maps]
    lines = [*header, *change.sentences, *shared, *keys, *_USE]
    files = {"kustomization.yaml": comment_header(lines) + write_documents(component)}
    return files | {name: write_documents(patch) for name, patch in patches.items()}


def _patches(
    change: Change, deployment: str, namespace: str | None, replicas: int | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    where = {} if namespace is None else {"namespace": namespace}
    spec = {} if replicas is None else {"replicas": replicas}
    if not change.is_empty or spec:
        template = {} if change.is_empty else {"template": change.template_patch(public=True)}
        yield (
            "deployment.yaml",
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": deployment, **where},
                "spec": {**spec, **template},
            },
        )
    for name, data in change.config_maps.items():
        yield (
            f"configmap-{name}.yaml",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **where}, "data": dict(data)},
        )


def _set_variable(container: dict[str, Any], name: str, value: str) -> None:
    """Set the last variable of that name, which is the one that counts, or add one."""
    entries = container.setdefault("env", [])
    places = [place for place, entry in enumerate(entries) if entry.get("name") == name]
    if places:
        entries[places[-1]] = {"name": name, "value": value}
    else:
        entries.append({"name": name, "value": value})
