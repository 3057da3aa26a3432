"""The Deployment and the Service that serve production where slotune owns them (``spec.template``).

The user's template is kept: labels and one annotation are added, nothing is taken away. A Deployment's default strategy
(25 % surge) starts a new pod before it stops the old one, which never ends on a single GPU. Here one pod ends before
the next one starts unless a rollout found a spare GPU: that ends on any number of GPUs, and when nobody is served
meanwhile, ``rollout.allowDowntime`` was asked before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from slotune.api.labels import DEPLOYMENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL, SERVING_LABEL
from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1 import API_VERSION, LlamaDeployment
from slotune.rollout.facts import CANDIDATE_ANNOTATION, SOURCE_ANNOTATION, Strategy, template_digest
from slotune.rollout.strategy import ONE_AT_A_TIME

__all__ = ["DEFAULT_PORT", "owner_reference", "serving_deployment", "serving_pod_template", "serving_service"]

DEFAULT_PORT: Final = 8080
"""Where llama-server listens unless it is told otherwise."""
_SERVICE_PORT_NAME: Final = "http"


def serving_pod_template(
    owner: LlamaDeployment, template: Mapping[str, Any], candidate_hash: str | None
) -> dict[str, Any]:
    """The pod template that is sent: ``template`` with our labels and the candidate's name. The input is untouched."""
    sent = deepcopy(dict(template))
    metadata = sent["metadata"] = dict(sent.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **_labels(owner), SERVING_LABEL: owner.metadata.name}
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(CANDIDATE_ANNOTATION, None)
    if candidate_hash is not None:
        annotations[CANDIDATE_ANNOTATION] = candidate_hash
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    return sent


def serving_deployment(
    owner: LlamaDeployment,
    template: Mapping[str, Any],
    candidate_hash: str | None,
    replicas: int | None,
    strategy: Strategy = ONE_AT_A_TIME,
) -> dict[str, Any]:
    """The Deployment for server-side apply.

    Args:
        owner: gives name, namespace and ``rollout.progressDeadline``.
        template: raw pod template with the candidate's flags; ``spec.template`` as it is for the baseline.
        candidate_hash: names the candidate in it, the baseline included.
        replicas: None leaves them out, since an autoscaler owns them.
        strategy: resolved for these replicas.
    """
    metadata = owner.metadata
    pods = serving_pod_template(owner, template, candidate_hash)
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {SERVING_LABEL: metadata.name}},
        "strategy": strategy.for_deployment(),
        # Whole seconds are needed, and more than minReadySeconds, which is 0 here.
        "progressDeadlineSeconds": max(1, math.ceil(parse_duration(owner.spec.rollout.progress_deadline))),
        "template": pods,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**_metadata(owner), "annotations": {SOURCE_ANNOTATION: template_digest(pods)}},
        "spec": spec,
    }


def serving_service(
    owner: LlamaDeployment, template: Mapping[str, Any], container: str, stated_port: int | None
) -> dict[str, Any] | None:
    """The Service for server-side apply: every serving pod, and never a trial. None: the pod has no such container.

    Args:
        owner: gives name and namespace.
        template: raw pod template of the pods that it leads to.
        container: name of llama-server's container in it.
        stated_port: what the server's flags and variables say (``--port``); None when they say nothing. It is where
            the server listens, so a ``containerPort`` that says otherwise, which is only a note, does not count.
    """
    server = next((it for it in template["spec"]["containers"] if it["name"] == container), None)
    if server is None:
        return None
    number, name = _port(server, stated_port)
    port = {"name": _SERVICE_PORT_NAME, "port": number, "protocol": "TCP", "targetPort": name or number}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(owner),
        "spec": {"selector": {SERVING_LABEL: owner.metadata.name}, "ports": [port]},
    }


def owner_reference(owner: LlamaDeployment) -> dict[str, Any]:
    """Makes the cluster delete an object together with its LlamaDeployment."""
    return {
        "apiVersion": API_VERSION,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _port(server: Mapping[str, Any], stated: int | None) -> tuple[int, str | None]:
    """Number and, where the pod names it, name of the port. What is no port at all is the API server's to refuse."""
    ports = [it for it in server.get("ports") or () if isinstance(it, Mapping) and "containerPort" in it]
    tcp = [it for it in ports if it.get("protocol", "TCP") == "TCP"]
    if stated is not None:
        tcp = [it for it in tcp if it["containerPort"] == stated]
    best = next((it for it in tcp if it.get("name") == _SERVICE_PORT_NAME), tcp[0] if tcp else {})
    return best.get("containerPort", stated or DEFAULT_PORT), best.get("name")


def _labels(owner: LlamaDeployment) -> dict[str, str]:
    return {MANAGED_BY_LABEL: MANAGED_BY, DEPLOYMENT_LABEL: owner.metadata.name}


def _metadata(owner: LlamaDeployment) -> dict[str, Any]:
    return {
        "name": owner.metadata.name,
        "namespace": owner.metadata.namespace,
        "labels": _labels(owner),
        "ownerReferences": [owner_reference(owner)],
    }
