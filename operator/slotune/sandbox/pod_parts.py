"""What the pods of trials and surveys have in common: where they run, what they may do, which kind of GPU they get."""

from __future__ import annotations

from typing import Any, Final

from slotune.api.gpu_resources import devices_in, is_gpu_resource
from slotune.api.quantities import parse_quantity
from slotune.api.v1alpha1.gpu_class import GPUClass
from slotune.api.v1alpha1.sandbox import Sandbox
from slotune.sandbox.kept_template import KeptTemplate

__all__ = [
    "OWN_ANNOTATIONS",
    "OWN_LABELS",
    "client_security",
    "on_class",
    "pod_base",
    "server_security",
    "without_gpu",
]

Object = dict[str, Any]

OWN_LABELS: Final = {"sidecar.istio.io/inject": "false"}
OWN_ANNOTATIONS: Final = {
    "sidecar.istio.io/inject": "false",
    "linkerd.io/inject": "disabled",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""No mesh beside the server: it would measure itself, and a Job would wait for it. No move in the middle of a trial."""
CLIENT_USER: Final = 65532
"""A user without a name or rights: "nonroot" by custom."""

GRACE_S: Final = 10
"""llama-server ignores SIGTERM while it loads, and has nothing to drain here."""


def pod_base(kept: KeptTemplate, gpu_class: GPUClass, sandbox: Sandbox) -> Object:
    """The pod's spec without containers, on the nodes of ``gpu_class``."""
    pod = dict(kept.pod)
    tolerations = [*(pod.get("tolerations") or []), *(t.to_manifest() for t in gpu_class.spec.tolerations)]
    pod["tolerations"] = [one for place, one in enumerate(tolerations) if one not in tolerations[:place]]
    pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), **gpu_class.spec.node_selector}
    pod["securityContext"] = {"seccompProfile": {"type": "RuntimeDefault"}, **(pod.get("securityContext") or {})}
    pod |= {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
    }
    if sandbox.priority_class_name is not None:
        pod["priorityClassName"] = sandbox.priority_class_name
    return pod


def client_security() -> Object:
    """Of a container that runs slotune: everything that Pod Security "restricted" asks for, whatever the pod says."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsGroup": CLIENT_USER,
        "runAsNonRoot": True,
        "runAsUser": CLIENT_USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def server_security(stated: Object) -> Object:
    """What Pod Security "restricted" asks for where the user says nothing; which user it runs as is the image's."""
    capabilities = {"drop": ["ALL"], **(stated.get("capabilities") or {})}
    if stated.get("privileged") or {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set(capabilities.get("add") or []):
        return stated  # the API server refuses the contradiction
    return {"allowPrivilegeEscalation": False, **stated, "capabilities": capabilities}


def on_class(resources: Object, gpu_class: GPUClass) -> Object:
    """The same resources with the class's kind of GPU instead of the template's."""
    wanted = gpu_class.spec.resource_name
    limits = dict(resources.get("limits") or {})
    requests = dict(resources.get("requests") or {})
    if wanted is not None and wanted in limits:
        return resources
    stated = {name: amount for name, amount in {**requests, **limits}.items() if is_gpu_resource(name)}
    changed = _without_gpu(resources)
    if wanted is not None and (stated or not resources.get("claims")):
        counts = [devices_in(name, parse_quantity(str(amount))) for name, amount in stated.items()]
        changed["limits"] = {**changed.get("limits", {}), wanted: str(max([1, *counts]))}
    return changed


def without_gpu(resources: Object) -> Object:
    """The same resources without GPUs and device claims."""
    return _without_gpu({name: value for name, value in resources.items() if name != "claims"})


def _without_gpu(resources: Object) -> Object:
    changed = dict(resources)
    for kind in ("limits", "requests"):
        kept = {name: amount for name, amount in (changed.pop(kind, None) or {}).items() if not is_gpu_resource(name)}
        if kept:
            changed[kind] = kept
    return changed
