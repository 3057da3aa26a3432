"""Pods, nodes and Deployments of a llama-server as an API server gives them; builders show only what differs."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
READY_SINCE = "2026-03-02T12:01:00Z"


def container(**changes: Any) -> Object:
    return {"name": "llama", "image": IMAGE, "args": ["-m", "/models/a.gguf"]} | changes


def container_status(**changes: Any) -> Object:
    running = {"running": {"startedAt": "2026-03-02T12:00:10Z"}}
    return {"name": "llama", "ready": True, "restartCount": 0, "state": running} | changes


def crashed(code: int = 1, reason: str = "Error") -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-03-02T12:00:30Z"}}


def pod(
    name: str = "chat-5d4f-a",
    *containers: Object,
    statuses: list[Object] | None = None,
    spec: Object | None = None,
    phase: str = "Running",
    conditions: list[Object] | None = None,
    **metadata: Any,
) -> Object:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": READY_SINCE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "chat"}} | metadata,
        "spec": {"nodeName": "node-1", "containers": list(containers) or [container()]} | (spec or {}),
        "status": {
            "phase": phase,
            "podIP": "10.0.0.7",
            "conditions": [ready] if conditions is None else conditions,
            "containerStatuses": [container_status()] if statuses is None else statuses,
        },
    }


def deployment(name: str = "chat", *containers: Object, replicas: int = 1, **status: Any) -> Object:
    template = {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": list(containers) or [container()]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "chat"}}, "template": template},
        "status": status,
    }


def node(name: str = "node-1", labels: Object | None = None, conditions: list[Object] | None = None) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "status": {"capacity": {"cpu": "16", "memory": "64Gi"}, "conditions": conditions or []},
    }


def event(reason: str, message: str, at: str = "2026-03-02T13:00:00Z", **changes: Any) -> Object:
    about = {"kind": "Pod", "name": "chat-5d4f-a"}
    return {
        "metadata": {"name": f"{reason}.{at}", "namespace": "shop"},
        "involvedObject": about,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
        "count": 1,
    } | changes


def llama_deployment(name: str, **spec: Any) -> dict[str, Any]:
    """A LlamaDeployment that owes 12 tokens/s, and a first token within 1.5 s."""
    return {
        "apiVersion": "slotune.dev/v1alpha1",
        "kind": "LlamaDeployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "slo": {"ttftP95": "1500ms", "tokensPerSecondPerUser": "12"},
            "workload": {"ref": {"name": "traffic"}},
            "models": [{"name": "q4", "path": "/models/a.gguf"}],
            "gpuClasses": [{"name": "l4"}],
        }
        | spec,
    }
