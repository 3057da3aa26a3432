"""GPUs that a pod asks for by ResourceClaims (dynamic resource allocation) in place of an extended resource."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from slotune.api.gpu_resources import is_gpu_class
from slotune.gathering.object_parts import Object, part, parts

__all__ = ["claim_templates_of", "claimed_gpus", "claimed_parts"]


def claim_templates_of(pod: Object) -> tuple[str, ...]:
    """Names of the ResourceClaimTemplates that a pod's claims are made from."""
    claims = parts(part(pod, "spec"), "resourceClaims")
    return tuple(str(one["resourceClaimTemplateName"]) for one in claims if one.get("resourceClaimTemplateName"))


def claimed_gpus(pod: Object, templates: Mapping[str, Object]) -> int:
    """Devices that the pod's claims ask for at most; a claim for all of a node counts as one.

    Args:
        pod: as JSON has it.
        templates: ResourceClaimTemplates by name, as far as they could be read.
    """
    return sum(
        max((_devices(one) for one in _alternatives(request)), default=0)
        for name in claim_templates_of(pod)
        for request in _requests(templates.get(name, {}))
    )


def claimed_parts(pod: Object, templates: Mapping[str, Object]) -> tuple[str, ...]:
    """DeviceClasses of slices of devices (``mig.nvidia.com``) among all that its claims may be met by, sorted."""
    named = {
        str(one.get("deviceClassName") or "")
        for name in claim_templates_of(pod)
        for request in _requests(templates.get(name, {}))
        for one in _alternatives(request)
    }
    return tuple(sorted(name for name in named if re.search(r"(^|[-._])mig($|[-._\d])", name.lower())))


def _requests(template: Object) -> Iterator[Object]:
    yield from parts(part(part(part(template, "spec"), "spec"), "devices"), "requests")


def _alternatives(request: Object) -> Iterator[Object]:
    """Since v1beta2 a request is ``exactly`` one thing, or the ``firstAvailable`` of several; before, it was flat."""
    yield from request.get("firstAvailable") or [request.get("exactly") or request]


def _devices(request: Object) -> int:
    if not is_gpu_class(str(request.get("deviceClassName") or "")):
        return 0
    count = request.get("count")
    return count if isinstance(count, int) and count > 0 else 1
