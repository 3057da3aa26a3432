"""The kinds of object that the operator reads or writes, with the addresses they have at the API server.

Written down instead of discovered: discovery would cost a request for each group at every start, and what is not in
this list has no right in the operator's role either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from slotune.api.v1alpha1 import KINDS
from slotune.api.v1alpha1.meta import GROUP, VERSION

__all__ = [
    "CONFIG_MAP",
    "DEPLOYMENT",
    "EVENT",
    "GPU_CLASS",
    "HORIZONTAL_POD_AUTOSCALER",
    "JOB",
    "LLAMA_DEPLOYMENT",
    "LLAMA_TRIAL",
    "LLAMA_WORKLOAD",
    "NETWORK_POLICY",
    "NODE",
    "POD",
    "RESOURCE_CLAIM_TEMPLATE",
    "SECRET",
    "SERVICE",
    "WATCHED",
    "Kind",
    "kind_of",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind at the API server."""

    name: str
    group: str
    """Empty for the core group."""
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As manifests write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The address below the API server. Without ``name`` it is the list's; without ``namespace`` everybody's."""
        assert namespace is None or self.namespaced, f"{self.name} has no namespace"
        parts = ["", "apis", self.group] if self.group else ["", "api"]
        parts.append(self.version)
        parts += ["namespaces", namespace] if namespace is not None else []
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)


CONFIG_MAP: Final = Kind("ConfigMap", "", "v1", "configmaps")
DEPLOYMENT: Final = Kind("Deployment", "apps", "v1", "deployments")
EVENT: Final = Kind("Event", "events.k8s.io", "v1", "events")
HORIZONTAL_POD_AUTOSCALER: Final = Kind("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers")
JOB: Final = Kind("Job", "batch", "v1", "jobs")
NETWORK_POLICY: Final = Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies")
NODE: Final = Kind("Node", "", "v1", "nodes", namespaced=False)
POD: Final = Kind("Pod", "", "v1", "pods")
RESOURCE_CLAIM_TEMPLATE: Final = Kind("ResourceClaimTemplate", "resource.k8s.io", "v1", "resourceclaimtemplates")
SECRET: Final = Kind("Secret", "", "v1", "secrets")
SERVICE: Final = Kind("Service", "", "v1", "services")

_OWN: Final = {
    kind.INFO.kind: Kind(kind.INFO.kind, GROUP, VERSION, kind.INFO.plural, kind.INFO.namespaced) for kind in KINDS
}
GPU_CLASS: Final = _OWN["GPUClass"]
LLAMA_DEPLOYMENT: Final = _OWN["LlamaDeployment"]
LLAMA_TRIAL: Final = _OWN["LlamaTrial"]
LLAMA_WORKLOAD: Final = _OWN["LlamaWorkload"]

WATCHED: Final = frozenset({LLAMA_DEPLOYMENT, LLAMA_TRIAL, LLAMA_WORKLOAD, GPU_CLASS, JOB, DEPLOYMENT, NODE})
"""Kinds that are followed all the time; others are read when they are needed."""

_KNOWN: Final = {
    (kind.api_version, kind.name): kind
    for kind in (
        CONFIG_MAP,
        DEPLOYMENT,
        EVENT,
        HORIZONTAL_POD_AUTOSCALER,
        JOB,
        NETWORK_POLICY,
        NODE,
        POD,
        RESOURCE_CLAIM_TEMPLATE,
        SECRET,
        SERVICE,
        *_OWN.values(),
    )
}


def kind_of(manifest: dict[str, Any]) -> Kind:
    """The kind of a manifest. One that is not listed here is a :class:`KeyError`."""
    return _KNOWN[manifest["apiVersion"], manifest["kind"]]
