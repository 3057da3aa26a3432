"""Raw objects of a cluster, with good defaults."""

from __future__ import annotations

from typing import Any

from slotune.api.v1alpha1 import LlamaDeployment

OWN_HASH, HASH, OTHER_HASH = "aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc"


def template(*args: str, candidate: str | None = None, **pod: Any) -> dict[str, Any]:
    """A pod template as an API server gives it."""
    metadata: dict[str, Any] = {"creationTimestamp": None, "labels": {"app": "chat"}}
    if candidate is not None:
        metadata["annotations"] = {"slotune.dev/candidate": candidate}
    container = {"name": "llama", "image": "ghcr.io/ggml-org/llama.cpp:server", "args": list(args or ("-m", "/m.gguf"))}
    return {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Always", **pod}}


def deployment(
    *,
    replicas: int = 1,
    strategy: dict[str, Any] | None = None,
    pods: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    managed: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Deployment whose pods all answer."""
    settled = {
        "observedGeneration": 3,
        "replicas": replicas,
        "updatedReplicas": replicas,
        "readyReplicas": replicas,
        "availableReplicas": replicas,
        "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}],
    }
    metadata: dict[str, Any] = {"name": "chat", "namespace": "shop", "uid": "u-1", "resourceVersion": "7"}
    metadata |= {"generation": 3, "managedFields": managed or []}
    spec = {"replicas": replicas, "strategy": strategy or {}, "template": pods or template(), **spec}
    return {"metadata": metadata, "spec": spec, "status": settled | (status or {})}


def owner(**spec: Any) -> LlamaDeployment:
    """A LlamaDeployment with a template, as the API server gives it."""
    manifest = {
        "apiVersion": "slotune.dev/v1alpha1",
        "kind": "LlamaDeployment",
        "metadata": {"name": "chat", "namespace": "shop", "uid": "lld-1", "generation": 4},
        "spec": {
            "slo": {"ttftP95": "2s"},
            "workload": {"ref": {"name": "chat"}},
            "models": [{"name": "q8", "path": "/m.gguf"}],
            "template": template(),
            "gpuClasses": [{"name": "l4"}],
            **spec,
        },
    }
    del manifest["spec"]["template"]["metadata"]["creationTimestamp"]  # type: ignore[index]  # plain data
    return LlamaDeployment.from_manifest(manifest)
