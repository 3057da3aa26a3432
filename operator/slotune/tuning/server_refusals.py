"""Servers that slotune does not tune, each with one sentence: what was found, where, and what to do.

A refusal is better than a guess: a baseline that is not what runs today would make every comparison wrong. Each check
is a function of the pod that finds one kind of thing; their order is that in which a person would want to hear of them.
What single flags have against them is said by :mod:`slotune.llama.flag_reading`.
"""

from __future__ import annotations

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
from slotune.tuning.config_files import config_file
from slotune.tuning.gpu_refusals import several_gpus, shared_claim
from slotune.tuning.pod_reading import read_pod
from slotune.tuning.refusal import Refusal, ServerPod
from slotune.tuning.refused_programs import RPC_WORKER, another_program, hidden_flags

__all__ = ["CHECKS", "refusals"]

_OPERATORS: Final = ("llmkube", "kserve", "kubeai", "kaito", "seldon", "kuberay", "ollama-operator", "llama-stack",
                     "gpustack", "knative", "modelmesh")  # fmt: skip
"""In ``app.kubernetes.io/managed-by``: they write the Deployment themselves. Helm, Argo CD and Flux apply what a person
wrote, and there a patch has its place."""


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
    pod = ServerPod(
        template, container, found, deployment, gpu_resource, claim_templates, reading, config_maps, settings
    )
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
    servers = llama_servers(pod.template)
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


def _fetched_model(pod: ServerPod) -> Iterator[Refusal]:
    """Weights that llama-server fetches: also with -m, which is where it puts them, or nothing."""
    for setting, where in pod.stated("-hf", "-mu", "-dr"):
        yield Refusal(
            "FetchedModel", where if setting.variable else f"{where} {setting.spelling}", setting.values[0],
            "lets llama-server fetch its weights, and nobody could tell that they are the file of spec.models, which "
            "is measured: fetch them in an init container, and name the file with -m alone",
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
    _fetched_model,
    config_file,
    _several_nodes,
    _no_text,
    several_gpus,
    shared_claim,
)
"""In the order in which they are told."""
