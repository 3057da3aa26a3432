"""The Job that runs one trial: the user's own pod with llama-server as a native sidecar, and a load client beside it.

The client is the only main container, so the Job ends when it does, and kubelet stops the server. They talk over
127.0.0.1: no network lies between them. The pod holds no token of the API server, gets no users, and reaches nothing.
Manifests are plain dictionaries and a function of their arguments alone, so applying one twice changes nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from slotune.api.labels import (
    DEPLOYMENT_LABEL,
    LOAD_CLIENT,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    SANDBOX_LABEL,
    TRIAL_LABEL,
)
from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1.gpu_class import GPUClass
from slotune.api.v1alpha1.sandbox import Sandbox
from slotune.api.v1alpha1.trial import LlamaTrial, LlamaTrialSpec
from slotune.sandbox.kept_template import KeptTemplate, UnusableTemplateError, kept_of
from slotune.sandbox.pod_parts import (
    OWN_ANNOTATIONS,
    OWN_LABELS,
    client_security,
    on_class,
    pod_base,
    server_security,
)
from slotune.sandbox.report_stream import summary_limit

__all__ = [
    "REFERENCE_KEY",
    "TRIAL_SPEC_ANNOTATION",
    "ClientImage",
    "TrialServer",
    "network_policy",
    "trial_job",
]

Object = dict[str, Any]

TRIAL_SPEC_ANNOTATION: Final = "slotune.dev/trial-spec"
"""On a trial's pod: its spec as JSON, which the client reads as a file."""
_ANNOTATIONS_LIMIT: Final = 250_000
"""Bytes; Kubernetes allows 256 KiB for all annotations of an object."""

REFERENCE_KEY: Final = "reference"
"""Key of the recorded answers in their ConfigMap."""

DIRECTORY: Final = "/slotune"
PROBE_PERIOD_S: Final = 2
TTL_S: Final = 86_400
"""A day after its end: only a safety net, the operator reads the result and deletes the Job long before."""
PULL_ALLOWANCE_S: Final = 1800
INIT_ALLOWANCE_S: Final = 3600
"""An init container may fetch a model of 50 GB."""
MARGIN_S: Final = 600


@dataclass(frozen=True, slots=True)
class TrialServer:
    """How llama-server is started."""

    container: str
    """Name of its container in the template, and in the trial."""
    args: tuple[str, ...]
    """Behind the program; everything that is measured is in here."""
    program: tuple[str, ...] | None = None
    """``command`` up to the program, e.g. ``("tini", "--", "/app/llama-server")``; None: the image's entry point."""
    env: tuple[Object, ...] = field(default=(), repr=False)
    """From :func:`slotune.sandbox.server_environment.server_environment`."""
    port: int = 8080
    """Where it listens; ``args`` must say the same, on 0.0.0.0: kubelet's probe comes from outside of the pod."""


@dataclass(frozen=True, slots=True)
class ClientImage:
    """slotune's own image."""

    name: str
    pull_policy: str = "IfNotPresent"


def trial_job(
    trial: LlamaTrial,
    template: Mapping[str, Any],
    server: TrialServer,
    *,
    gpu_class: GPUClass,
    sandbox: Sandbox,
    client: ClientImage,
    measuring_s: float,
    node: str | None = None,
) -> Object:
    """The Job of ``trial``, of the same name.

    Args:
        trial: with name, namespace and uid.
        template: the user's PodTemplateSpec as JSON has it.
        server: how llama-server is started.
        gpu_class: what it runs on.
        sandbox: what it may touch.
        client: the load client's image.
        measuring_s: most seconds that the load client may need; it stops earlier by itself.
        node: where it had better run; None where any node of the class will do. It runs elsewhere where that is full.

    Raises:
        UnusableTemplateError: no Job can be made; says what to change.
    """
    metadata, spec = trial.metadata, trial.spec
    _check(trial, template)
    kept = kept_of(template, server.container, server.args)
    if LOAD_CLIENT in kept.container_names:
        raise UnusableTemplateError("container", LOAD_CLIENT, "slotune's own container has this name: give it another")
    startup_s = float(parse_duration(spec.measurement.startup_timeout))
    pod = pod_base(kept, gpu_class, sandbox)
    pod["initContainers"] = [*kept.init_containers, _server(kept, server, gpu_class, startup_s)]
    volume = _free_name("slotune", pod["volumes"])
    pod["volumes"] = [*pod["volumes"], {"name": volume, "projected": {"sources": _sources(spec)}}]
    containers = len(pod["initContainers"]) + 1
    pod["containers"] = [_client(client, sandbox, server.port, volume, summary_limit(containers))]
    fetch_s = INIT_ALLOWANCE_S if kept.init_containers else 0
    pod["activeDeadlineSeconds"] = math.ceil(PULL_ALLOWANCE_S + fetch_s + startup_s + measuring_s)
    _one_trial_per_node(pod)
    if node is not None:
        _prefer(pod, node)
    labels = {
        MANAGED_BY_LABEL: MANAGED_BY,
        DEPLOYMENT_LABEL: spec.llama_deployment,
        TRIAL_LABEL: metadata.name,
    }
    queue = {} if sandbox.queue_name is None else {"kueue.x-k8s.io/queue-name": sandbox.queue_name}
    waiting_s = float(parse_duration(sandbox.capacity_timeout))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": labels | queue,
            "ownerReferences": [
                {
                    "apiVersion": trial.api_version,
                    "kind": trial.kind,
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            # Only for a pod that kubelet never ends: this one deletes the pod, and with it all that it says.
            "activeDeadlineSeconds": math.ceil(pod["activeDeadlineSeconds"] + waiting_s + MARGIN_S),
            "ttlSecondsAfterFinished": TTL_S,
            "podReplacementPolicy": "Failed",
            # The scheduler deletes a pod that it preempts: so the Job still says afterwards that it was a disruption.
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {
                "metadata": {
                    "labels": labels | OWN_LABELS | {SANDBOX_LABEL: "trial"},
                    "annotations": kept.annotations | OWN_ANNOTATIONS | {TRIAL_SPEC_ANNOTATION: _json(spec)},
                },
                "spec": pod,
            },
        },
    }


def network_policy_name(deployment: str) -> str:
    """Name of the NetworkPolicy of a LlamaDeployment's trials and surveys."""
    return f"{deployment}-trials"


def network_policy(deployment: str, namespace: str, uid: str, sandbox: Sandbox) -> Object:
    """Nobody reaches the pods of trials and surveys of a LlamaDeployment, and they reach nobody.

    With ``sandbox.egress: HTTPS`` they reach port 443 anywhere, and DNS. Kubelet's probes come from the node, which
    the common network plugins let through (the API leaves it to them). A plugin that does not enforce policies ignores
    this one.
    """
    egress = []
    if sandbox.egress == "HTTPS":
        egress = [
            {"ports": [{"protocol": "TCP", "port": 443}]},
            {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
        ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": network_policy_name(deployment),
            "namespace": namespace,
            "labels": {MANAGED_BY_LABEL: MANAGED_BY, DEPLOYMENT_LABEL: deployment},
            "ownerReferences": [
                {
                    "apiVersion": "slotune.dev/v1alpha1",
                    "kind": "LlamaDeployment",
                    "name": deployment,
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "podSelector": {
                "matchLabels": {DEPLOYMENT_LABEL: deployment},
                "matchExpressions": [{"key": SANDBOX_LABEL, "operator": "Exists"}],
            },
            "policyTypes": ["Ingress", "Egress"],
            # An empty list is not kept, and the next apply of one would be a change.
            **({"egress": egress} if egress else {}),
        },
    }


def _check(trial: LlamaTrial, template: Mapping[str, Any]) -> None:
    prompts, trace = trial.spec.workload.prompts, trial.spec.workload.load.trace
    if prompts.file is not None or (trace is not None and trace.file is not None):
        raise UnusableTemplateError("workload", "a file", "put it into a ConfigMap, or prompts into a Secret")
    for name in (trial.metadata.name, trial.spec.llama_deployment):
        if len(name) > 63 or "." in name:
            raise UnusableTemplateError("metadata.name", name, "must fit a label: at most 63 characters, no dots")
    size = len(_json(trial.spec).encode())
    if size > _ANNOTATIONS_LIMIT:
        raise UnusableTemplateError("candidate.extraArgs", f"{size} bytes long", "shorten the server's own arguments")
    if not isinstance(template.get("spec"), Mapping):
        raise UnusableTemplateError("template.spec", "missing", "write the pod's spec there")


def _server(kept: KeptTemplate, server: TrialServer, gpu_class: GPUClass, startup_s: float) -> Object:
    container = dict(kept.server)
    if server.program is not None:
        container["command"] = list(server.program)
    container["args"] = list(server.args)
    container["env"] = [dict(entry) for entry in server.env]
    container["restartPolicy"] = "Always"
    container["startupProbe"] = {
        "httpGet": {"path": "/health", "port": server.port},
        "periodSeconds": PROBE_PERIOD_S,
        "timeoutSeconds": 5,
        "failureThreshold": max(1, math.ceil(startup_s / PROBE_PERIOD_S)),
    }
    # The last lines of a server that failed outlive its log.
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    container["resources"] = on_class(container.get("resources") or {}, gpu_class)
    container["securityContext"] = server_security(container.get("securityContext") or {})
    return container


def _client(client: ClientImage, sandbox: Sandbox, port: int, volume: str, summary_bytes: int) -> Object:
    amount = {"cpu": sandbox.load_client.cpu, "memory": sandbox.load_client.memory}
    return {
        "name": LOAD_CLIENT,
        "image": client.name,
        "imagePullPolicy": client.pull_policy,
        # Without command: the image's entry point is slotune.
        "args": ["trial", "--directory", DIRECTORY, "--port", str(port), "--summary-bytes", str(summary_bytes)],
        "resources": {"limits": dict(amount), "requests": dict(amount)},
        "securityContext": client_security(),
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": volume, "mountPath": DIRECTORY, "readOnly": True}],
    }


def _sources(spec: LlamaTrialSpec) -> list[Object]:
    """The files below /slotune."""
    field_path = f"metadata.annotations['{TRIAL_SPEC_ANNOTATION}']"
    sources: list[Object] = [
        {"downwardAPI": {"items": [{"path": "trial.json", "fieldRef": {"fieldPath": field_path}}]}}
    ]
    prompts, trace = spec.workload.prompts, spec.workload.load.trace
    for kind, reference, path in (
        ("configMap", prompts.config_map_key_ref, "prompts"),
        ("secret", prompts.secret_key_ref, "prompts"),
        ("configMap", None if trace is None else trace.config_map_key_ref, "trace"),
    ):
        if reference is not None:
            sources.append({kind: {"name": reference.name, "items": [{"key": reference.key, "path": path}]}})
    if spec.reference is not None:
        items = [{"key": REFERENCE_KEY, "path": "reference"}]
        # Without it the pod starts all the same, and its client says what is missing.
        if spec.reference.secret is None:
            sources.append({"configMap": {"name": spec.reference.config_map, "items": items, "optional": True}})
        else:
            sources.append({"secret": {"name": spec.reference.secret, "items": items, "optional": True}})
    return sources


def _one_trial_per_node(pod: Object) -> None:
    """Two trials on one node share its memory and its bus, and would measure each other."""
    affinity = dict(pod.get("affinity") or {})
    apart = dict(affinity.get("podAntiAffinity") or {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {
        "labelSelector": {"matchExpressions": [{"key": TRIAL_LABEL, "operator": "Exists"}]},
        "namespaceSelector": {},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart[required] = [*(apart.get(required) or []), term]
    pod["affinity"] = affinity | {"podAntiAffinity": apart}


def _prefer(pod: Object, node: str) -> None:
    """Ask for ``node`` with all the weight that a wish has."""
    affinity = dict(pod.get("affinity") or {})
    nodes = dict(affinity.get("nodeAffinity") or {})
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    nodes[preferred] = [*(nodes.get(preferred) or []), {"weight": 100, "preference": by_name}]
    pod["affinity"] = affinity | {"nodeAffinity": nodes}


def _free_name(name: str, volumes: Sequence[Mapping[str, Any]]) -> str:
    taken = {volume.get("name") for volume in volumes}
    return next(free for free in (name, *(f"{name}-{number}" for number in range(2, 1000))) if free not in taken)


def _json(spec: LlamaTrialSpec) -> str:
    return json.dumps(spec.to_manifest(), separators=(",", ":"))
