"""Servers on more than one GPU, or on production's own, by whatever way they get it.

A trial's pod has the server and its native sidecars, so what those ask for counts, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from slotune.api.gpu_resources import devices_in, is_gpu_class, is_gpu_resource
from slotune.api.kubernetes_types import Container
from slotune.api.quantities import QuantityError, parse_quantity
from slotune.api.server_container import native_sidecars
from slotune.tuning.refusal import Refusal, ServerPod

__all__ = ["several_gpus", "shared_claim"]

_CURE: Final = "slotune tunes a server on one GPU: a model that fits one is often better off with a server on each"
_BESIDE: Final = "runs beside the server as long as the pod does, in a trial too, and "

_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                   "GGML_VK_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR")  # fmt: skip


def several_gpus(pod: ServerPod) -> Iterator[Refusal]:
    if pod.container is None or pod.reading is None:
        return
    yield from _by_resource(pod, pod.container)
    for setting, where in pod.stated("-dev", "-ts"):
        shares = [share for share in re.split(r"[,/]", setting.values[0]) if share.strip() not in {"", "0", "none"}]
        if len(shares) > 1:
            yield Refusal("SeveralGPUs", f"{where} {setting.flag.name}", setting.values[0], _CURE)
    for name in _VISIBLE:
        devices = pod.reading.environment.get(name, "")
        if len([device for device in devices.split(",") if device.strip()]) > 1:
            yield Refusal("SeveralGPUs", f"{pod.where} env {name}", devices, _CURE)
    for name, count in _claimed(pod):
        yield Refusal("SeveralGPUs", f"ResourceClaimTemplate {name} spec.spec.devices", count, _CURE)


def _by_resource(pod: ServerPod, server: Container) -> Iterator[Refusal]:
    for container in (server, *_beside(pod)):
        for name, amount in _extended(container):
            devices = devices_in(name, amount)
            if name == pod.gpu_resource and not is_gpu_resource(name):
                devices = int(amount)  # a name that says nothing, of which the GPUClass says that it is a GPU
            if devices > (1 if container is server else 0):
                field = f"container {container.name} resources.limits.{name}"
                beside = "" if container is server else _BESIDE
                yield Refusal("SeveralGPUs", field, f"{amount:f}", f"{beside}{_CURE}")


def _beside(pod: ServerPod) -> tuple[Container, ...]:
    """Native sidecars, which a trial's pod has too: their GPUs are taken as long as the server's."""
    return tuple(one for one in native_sidecars(pod.template) if one != pod.container)


def _extended(container: Container) -> Iterator[tuple[str, Decimal]]:
    resources = (container.model_extra or {}).get("resources") or {}
    for name, amount in {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.items():
        with suppress(QuantityError):  # the API server has the last word about it
            if "/" in name:
                yield name, parse_quantity(str(amount), name)


def _claimed(pod: ServerPod) -> Iterator[tuple[str, str]]:
    """Claim templates that ask for more than one device of a class in all, with what they ask for."""
    counts: Counter[str] = Counter()
    templates: dict[str, list[str]] = {}
    for claim, only in _claims(pod):
        name = str(claim.get("resourceClaimTemplateName"))
        devices = pod.claim_templates.get(name, {}).get("devices") or {}
        for request in devices.get("requests") or ():
            if only is not None and request.get("name") != only:
                continue
            for device_class, count in _of_request(request).items():
                if count is None:
                    yield name, "allocationMode All"
                    continue
                counts[device_class] += count
                templates.setdefault(device_class, []).append(name)
    for device_class, count in counts.items():
        if count > 1:
            named = " and ".join(dict.fromkeys(templates[device_class]))
            yield named, f"count {count}" if device_class == "" else f"{count} of {device_class}"


def _of_request(request: Mapping[str, Any]) -> dict[str, int | None]:
    """Most GPUs of each class that one request may bring; None: all that a node has."""
    most: dict[str, int | None] = {}
    for one in request.get("firstAvailable") or [request.get("exactly") or request]:
        device_class = str(one.get("deviceClassName") or "")
        if not is_gpu_class(device_class):
            continue
        if one.get("allocationMode") == "All":
            most[device_class] = None
        elif (known := most.get(device_class, 0)) is not None:
            most[device_class] = max(known, int(one.get("count") or 1))
    return most


def shared_claim(pod: ServerPod) -> Iterator[Refusal]:
    for claim in dict.fromkeys(str(claim.get("name")) for claim, _ in _claims(pod)):
        shared = next((one.get("resourceClaimName") for one, _ in _claims(pod) if one.get("name") == claim), None)
        if shared is not None:
            yield Refusal(
                "SharedClaim", f"spec.template.spec.resourceClaims {claim}", str(shared),
                "is one claim for all pods, so a trial would share production's GPU: use resourceClaimTemplateName",
            )  # fmt: skip


def _claims(pod: ServerPod) -> list[tuple[Mapping[str, Any], str | None]]:
    """The pod's claims that a trial's containers use, each with the only request of it that is used, if it is one."""
    if pod.container is None:
        return []
    offered = {one.get("name"): one for one in (pod.template.spec.model_extra or {}).get("resourceClaims") or ()}
    used: dict[tuple[Any, str | None], None] = {}
    for container in (pod.container, *_beside(pod)):
        for claim in ((container.model_extra or {}).get("resources") or {}).get("claims") or ():
            used[claim.get("name"), claim.get("request")] = None
    # A claim that is used whole has no use for one of its requests once more.
    return [
        (offered[name], request)
        for name, request in used
        if name in offered and (request is None or (name, None) not in used)
    ]
