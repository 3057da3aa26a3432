"""Servers that slotune does not tune, each with one sentence: what was found, where, and what to do.

A refusal is better than a guess: a baseline that is not what runs today would make every comparison wrong. Each check
is a function of the pod that finds one kind of thing; their order is that in which a person would want to hear of them.
What single flags have against them is said by :mod:`slotune.llama.flag_reading`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from slotune.api.kubernetes_types import PodTemplate
from slotune.api.labels import MANAGED_BY, MANAGED_BY_LABEL
from slotune.api.server_container import llama_servers, server_container
from slotune.llama.build_number import build_of_image
from slotune.llama.flag_cures import MODEL_FLAGS, ROUTER
from slotune.llama.flag_reading import read
from slotune.tuning.pod_reading import read_pod
from slotune.tuning.refusal import Refusal, ServerPod
from slotune.tuning.refused_programs import RPC_WORKER, another_program, hidden_flags

__all__ = ["CHECKS", "refusals"]

_OPERATORS: Final = ("llmkube", "kserve", "kubeai", "kaito", "seldon", "kuberay", "ollama-operator", "llama-stack",
                     "gpustack", "knative", "modelmesh")  # fmt: skip
"""In ``app.kubernetes.io/managed-by``: they write the Deployment themselves. Helm, Argo CD and Flux apply what a person
wrote, and there a patch has its place."""

_GPU: Final = re.compile(r"(^|[./-])(gpu|mig|xpu|npu|i915|xe)(?=[.\-/]|$)")
"""In the name of an extended resource."""

_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                   "GGML_VK_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR")  # fmt: skip


def refusals(
    template: PodTemplate,
    container: str | None,
    deployment: Mapping[str, Any] = MappingProxyType({}),
    *,
    gpu_resource: str | None = None,
    config_maps: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    claim_templates: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> tuple[Refusal, ...]:
    """Everything for which this server is not tuned; empty: it can be.

    Args:
        template: the pod.
        container: ``spec.container`` of the LlamaDeployment.
        deployment: the Deployment that ``targetRef`` names, as the API server gives it; empty with ``spec.template``.
        gpu_resource: the GPU class's resource; what looks like a GPU counts as one, too.
        config_maps: text by key, by name, as far as they are known.
        claim_templates: ``spec.spec`` of each ResourceClaimTemplate that the pod names, by name, as far as known.
    """
    found = server_container(template, container)
    reading = None if found is None else read_pod(template, found, config_maps)
    build = None if found is None else build_of_image(found.image)
    settings = () if reading is None else read(reading.arguments, reading.environment, build).settings
    pod = ServerPod(template, container, found, deployment, gpu_resource, claim_templates, reading, settings)
    return tuple(refusal for check in CHECKS for refusal in check(pod))


def _duplicate_containers(pod: ServerPod) -> Iterator[Refusal]:
    names = Counter(container.name for container in pod.template.spec.containers)
    for name, count in names.items():
        if count > 1:
            yield Refusal(
                "DuplicateContainer", "spec.template.spec.containers", name,
                f"{count} containers have this name: give each its own",
            )  # fmt: skip


def _no_container(pod: ServerPod) -> Iterator[Refusal]:
    if pod.container is not None:
        return
    names = ", ".join(container.name for container in pod.template.spec.containers)
    servers = llama_servers(pod.template.spec.containers)
    if pod.named is not None:
        yield Refusal("NoSuchContainer", "spec.container", pod.named, f"is no container of the pod: one of {names}")
    elif len(servers) > 1:
        listed = ", ".join(container.name for container in servers)
        yield Refusal(
            "SeveralServers", "spec.container", None,
            f"the pod has several llama-servers ({listed}): name the one to tune",
        )  # fmt: skip
    else:
        yield Refusal(
            "NoServer", "spec.container", None,
            f"no container of the pod can be told to be llama-server: name it, one of {names}",
        )  # fmt: skip


def _another_owner(pod: ServerPod) -> Iterator[Refusal]:
    metadata = pod.deployment.get("metadata") or {}
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            owner = f"{reference.get('kind')} {reference.get('name')}"
            yield Refusal(
                "OwnedByAnother", "metadata.ownerReferences", owner,
                f"writes this Deployment, so a change in it would be undone: describe the server in spec.template, or "
                f"change {owner}",
            )  # fmt: skip
            return
    manager = str((metadata.get("labels") or {}).get(MANAGED_BY_LABEL) or "")
    if manager == MANAGED_BY:
        yield Refusal(
            "OwnedByAnother", f"metadata.labels.{MANAGED_BY_LABEL}", manager,
            "slotune made this Deployment itself: name another one",
        )  # fmt: skip
    elif any(name in manager.lower() for name in _OPERATORS):
        yield Refusal(
            "OwnedByAnother", f"metadata.labels.{MANAGED_BY_LABEL}", manager,
            "is an operator that writes this Deployment, so a change in it would be undone: describe the server in "
            "spec.template, or change it there",
        )  # fmt: skip


def _scaled_to_zero(pod: ServerPod) -> Iterator[Refusal]:
    if (pod.deployment.get("spec") or {}).get("replicas") == 0:
        yield Refusal(
            "ScaledToZero", "spec.replicas", "0",
            "nothing runs that could be the baseline: start it, or describe the server in spec.template instead",
        )  # fmt: skip


def _router(pod: ServerPod) -> Iterator[Refusal]:
    if any(pod.stated(*MODEL_FLAGS)):
        return  # then it is no router, whatever else is stated
    for setting, where in pod.stated(*ROUTER):
        yield Refusal(
            "RouterMode", where, setting.values[0],
            "makes llama-server a router that starts other servers, and slotune measures one: name one model with -m",
        )  # fmt: skip


def _several_nodes(pod: ServerPod) -> Iterator[Refusal]:
    for setting, where in pod.stated("--rpc"):
        yield Refusal(
            "SeveralNodes", where, setting.values[0],
            "spreads the model over several machines, and slotune tunes a server on one: leave --rpc out",
        )  # fmt: skip
    if pod.container is not None:
        for word in (*(pod.container.command or ()), *(pod.container.args or ())[:1]):
            if PurePosixPath(word).name == RPC_WORKER:
                yield Refusal(
                    "SeveralNodes", f"{pod.where} command", word,
                    "is a worker for a server elsewhere: name the Deployment of llama-server",
                )  # fmt: skip


def _several_gpus(pod: ServerPod) -> Iterator[Refusal]:
    if pod.container is None or pod.reading is None:
        return
    cure = "slotune tunes a server on one GPU: a model that fits one is often better off with a server on each"
    limits = ((pod.container.model_extra or {}).get("resources") or {}).get("limits") or {}
    for name, amount in limits.items():
        is_gpu = name == pod.gpu_resource or ("/" in name and _GPU.search(name) is not None)
        if is_gpu and str(amount).isdigit() and int(amount) > 1:
            yield Refusal("SeveralGPUs", f"{pod.where} resources.limits.{name}", str(amount), cure)
    for setting, where in pod.stated("-dev", "-ts"):
        shares = [share for share in re.split(r"[,/]", setting.values[0]) if share.strip() not in {"", "0", "none"}]
        if len(shares) > 1:
            yield Refusal("SeveralGPUs", f"{where} {setting.flag.name}", setting.values[0], cure)
    for name in _VISIBLE:
        devices = pod.reading.environment.get(name, "")
        if len([device for device in devices.split(",") if device.strip()]) > 1:
            yield Refusal("SeveralGPUs", f"{pod.where} env {name}", devices, cure)
    for name, count in _claimed(pod):
        yield Refusal("SeveralGPUs", f"ResourceClaimTemplate {name} spec.spec.devices", count, cure)


def _claimed(pod: ServerPod) -> Iterator[tuple[str, str]]:
    """Claim templates of the container that ask for more than one device, with what they ask for."""
    for claim in _claims(pod):
        name = claim.get("resourceClaimTemplateName")
        devices = pod.claim_templates.get(str(name), {}).get("devices") or {}
        for request in devices.get("requests") or ():
            exactly = request.get("exactly") or request
            if exactly.get("allocationMode") == "All":
                yield str(name), "allocationMode All"
            elif int(exactly.get("count") or 1) > 1:
                yield str(name), f"count {exactly['count']}"


def _shared_claim(pod: ServerPod) -> Iterator[Refusal]:
    for claim in _claims(pod):
        if claim.get("resourceClaimName") is not None:
            yield Refusal(
                "SharedClaim", f"spec.template.spec.resourceClaims {claim.get('name')}", claim["resourceClaimName"],
                "is one claim for all pods, so a trial would share production's GPU: use resourceClaimTemplateName",
            )  # fmt: skip


def _claims(pod: ServerPod) -> list[Mapping[str, Any]]:
    """The pod's claims that the container uses."""
    if pod.container is None:
        return []
    used = ((pod.container.model_extra or {}).get("resources") or {}).get("claims") or ()
    names = {claim.get("name") for claim in used}
    offered = (pod.template.spec.model_extra or {}).get("resourceClaims") or ()
    return [claim for claim in offered if claim.get("name") in names]


def _no_text(pod: ServerPod) -> Iterator[Refusal]:
    for setting, where in pod.stated("--embedding", "--rerank"):
        kind = "embeddings" if setting.flag.name == "--embedding" else "ranks"
        yield Refusal(
            "NoTextServer", f"{where} {setting.spelling}" if setting.variable is None else where, None,
            f"it makes {kind} and no text: slotune keeps promises about the first token and tokens per second",
        )  # fmt: skip


CHECKS: Final = (
    _duplicate_containers,
    _no_container,
    _another_owner,
    _scaled_to_zero,
    another_program,
    hidden_flags,
    _router,
    _several_nodes,
    _no_text,
    _several_gpus,
    _shared_claim,
)
"""In the order in which they are told."""
