"""What makes two measurements comparable, as digests: the pod without its flags, and the nodes that it may run on.

Flags are what a search varies, and what a rollout changes, so they are never part of it; neither is what only serves
production (probes, labels, the number of replicas).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from slotune.api.v1alpha1 import GPUClass

__all__ = ["digest_of", "measured_part", "pod_digest"]

_PRODUCTION_ONLY = ("command", "args", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "ports")


def digest_of(said: object) -> str:
    """Sixteen hex digits of anything that JSON can say."""
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]


def measured_part(template: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """What of a pod template a measurement depends on, beside llama-server's flags."""
    spec = dict(template.get("spec") or {})
    server = next((dict(one) for one in spec.get("containers") or () if one.get("name") == container), {})
    for name in _PRODUCTION_ONLY:
        server.pop(name, None)
    server["env"] = [one for one in server.get("env") or () if not str(one.get("name")).startswith("LLAMA_")]
    server.pop("envFrom", None)
    kept = (
        "initContainers", "volumes", "nodeSelector", "affinity", "tolerations", "runtimeClassName", "resourceClaims",
        "securityContext",
    )  # fmt: skip
    return {"server": server, **{name: spec[name] for name in kept if name in spec}}


def pod_digest(template: Mapping[str, Any], container: str, classes: Mapping[str, GPUClass]) -> str:
    """Digest of the pod and of the nodes that trials run on."""
    nodes = {
        name: {
            "selector": one.spec.node_selector,
            "resource": one.spec.resource_name,
            "tolerations": [toleration.to_manifest() for toleration in one.spec.tolerations],
        }
        for name, one in sorted(classes.items())
    }
    return digest_of([measured_part(template, container), nodes])
