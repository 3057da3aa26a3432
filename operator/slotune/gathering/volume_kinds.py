"""What kind of storage stands behind each folder that a container mounts: weights on a share are read over a network.

A claim says nothing about that; the PersistentVolume behind it does, where the caller may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from slotune.gathering.object_parts import Object, part, parts

__all__ = ["claims_of", "volume_kinds", "volume_name"]

_CLAIM: Final = "persistentVolumeClaim"
_NO_DATA: Final = frozenset({"projected", "configMap", "secret", "downwardAPI"})
"""Volumes that hold settings and keys, never weights."""
_NO_SOURCE: Final = frozenset(
    {"accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy"}
    | {"storageClassName", "volumeAttributesClassName", "volumeMode"}
)
"""Fields of a PersistentVolume's spec that are not where its data lies."""


def volume_kinds(
    pod: Object, container: Object, claims: Mapping[str, Object], volumes: Mapping[str, Object]
) -> dict[str, str]:
    """Kind by mount path: ``nfs``, ``hostPath``, ``emptyDir``, ``emptyDir (memory)``, ``csi DRIVER``, ``image``,
    ``persistentVolumeClaim (nfs)``; of a claim whose volume is not known ``persistentVolumeClaim (class NAME)``.

    Args:
        pod: as JSON has it.
        container: one of it.
        claims: PersistentVolumeClaims by name.
        volumes: PersistentVolumes by name.
    """
    name = str(part(pod, "metadata").get("name", ""))
    by_name = {str(one.get("name")): one for one in parts(part(pod, "spec"), "volumes")}
    found = {}
    for mount in parts(container, "volumeMounts"):
        volume = by_name.get(str(mount.get("name")), {})
        kind = _source(volume, frozenset({"name"}))
        if kind is None or kind in _NO_DATA:
            continue
        claim = _claim_name(name, volume)
        where = _described(kind, volume[kind]) if claim is None else _claimed(claims.get(claim), volumes)
        found[str(mount.get("mountPath"))] = where
    return dict(sorted(found.items()))


def claims_of(pod: Object) -> tuple[str, ...]:
    """Names of the PersistentVolumeClaims that a pod mounts, each once."""
    name = str(part(pod, "metadata").get("name", ""))
    claims = (_claim_name(name, volume) for volume in parts(part(pod, "spec"), "volumes"))
    return tuple(dict.fromkeys(claim for claim in claims if claim is not None))


def volume_name(claim: Object) -> str | None:
    """Name of the PersistentVolume that a claim is bound to; None while it is not."""
    found = part(claim, "spec").get("volumeName")
    return str(found) if found else None


def _claim_name(pod: str, volume: Object) -> str | None:
    if "ephemeral" in volume:
        return f"{pod}-{volume.get('name')}"  # as Kubernetes names the claim that it makes of the template
    stated = part(volume, _CLAIM).get("claimName")
    return None if stated is None else str(stated)


def _claimed(claim: Object | None, volumes: Mapping[str, Object]) -> str:
    spec = {} if claim is None else part(claim, "spec")
    volume = part(volumes.get(volume_name(claim or {}) or "", {}), "spec")
    kind = _source(volume, _NO_SOURCE)
    if kind is not None:
        return f"{_CLAIM} ({_described(kind, volume[kind])})"
    storage = spec.get("storageClassName")
    return f"{_CLAIM} (class {storage})" if storage else _CLAIM


def _source(spec: Object, others: frozenset[str]) -> str | None:
    """The one field that says where the data lies, whatever kinds there may be."""
    return next((str(name) for name, value in spec.items() if name not in others and value is not None), None)


def _described(kind: str, source: Any) -> str:
    stated = source if isinstance(source, Mapping) else {}
    if kind in {"csi", "flexVolume"} and stated.get("driver"):
        return f"{kind} {stated['driver']}"
    return f"{kind} (memory)" if kind == "emptyDir" and stated.get("medium") == "Memory" else kind
