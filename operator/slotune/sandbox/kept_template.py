"""What of the user's pod a trial keeps: everything, but for what serves production or reaches out of the sandbox.

Left out, each for its reason (anything that is not in this list is copied, fields of a newer Kubernetes too):

- the pod's labels: a Service would send users to a trial; annotations of scrapers, service meshes, secret injectors;
- other containers: they would never end, and they take what is measured. Native sidecars among the init containers
  stay: they end with the pod, and the fetch of the model may need them;
- the server's probes, lifecycle hooks, ports and ``envFrom``;
- service account and its tokens, host network, host processes, host name, node name, priority, readiness gates,
  scheduling gates, topology spread (it counts production's labels);
- volumes that no kept container mounts, and Secrets that only the server mounts, unless an argument of the trial names
  a file in one. An init container keeps its Secrets: fetching the model may take them.

Volumes are mounted read-only, in init containers too, but for emptyDir and ephemeral ones, which begin empty: a trial
must not change production's files.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

__all__ = ["KeptTemplate", "UnusableTemplateError", "covering_mount", "kept_of"]

Object = dict[str, Any]

_POD_LEFT_OUT: Final = frozenset(
    {"activeDeadlineSeconds", "automountServiceAccountToken", "containers", "enableServiceLinks", "ephemeralContainers"}
    | {"hostIPC", "hostNetwork", "hostPID", "hostname", "initContainers", "nodeName", "preemptionPolicy", "priority"}
    | {"priorityClassName", "readinessGates", "restartPolicy", "schedulingGates", "serviceAccount"}
    | {"serviceAccountName", "setHostnameAsFQDN", "subdomain", "terminationGracePeriodSeconds"}
    | {"topologySpreadConstraints", "volumes"}
)
_SERVER_LEFT_OUT: Final = frozenset(
    {"args", "command", "env", "envFrom", "lifecycle", "livenessProbe", "ports", "readinessProbe", "resizePolicy"}
    | {"restartPolicy", "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy"}
    | {"tty"}
)
_ANNOTATIONS_LEFT_OUT: Final = (
    "prometheus.io/",
    "kubectl.kubernetes.io/",
    "sidecar.istio.io/",
    "linkerd.io/",
    "config.linkerd.io/",
    "vault.hashicorp.com/",
)
_WRITABLE: Final = frozenset({"emptyDir", "ephemeral"})


class UnusableTemplateError(Exception):
    """A pod template, or a trial, that no Job can be made from."""

    def __init__(self, field: str, value: object, cure: str) -> None:
        self.field, self.value, self.cure = field, value, cure
        super().__init__(f"{field} is {value}: {cure}")


@dataclass(frozen=True, slots=True)
class KeptTemplate:
    """The user's pod as a trial has it. All values are the caller's own copies."""

    pod: Object
    """Fields of the pod's spec, without containers."""
    annotations: dict[str, str]
    init_containers: list[Object]
    server: Object
    """llama-server's container without command, arguments, environment and probes."""
    notes: tuple[str, ...]
    """What was left out that a user would miss, in words."""

    @property
    def container_names(self) -> list[str]:
        """Of all containers."""
        return [str(container["name"]) for container in [*self.init_containers, self.server]]


def kept_of(template: Mapping[str, Any], container: str, arguments: Sequence[str] = ()) -> KeptTemplate:
    """What a trial keeps of ``template``, a PodTemplateSpec as JSON has it.

    Args:
        template: left untouched.
        container: name of llama-server's container.
        arguments: the trial's; a Secret's volume is kept for the server when one names a file in it.

    Raises:
        UnusableTemplateError: there is no such container, or it shares a device claim with production.
    """
    template = copy.deepcopy(dict(template))
    spec: Object = template.get("spec") or {}
    server = next((c for c in _dicts(spec.get("containers")) if c.get("name") == container), None)
    if server is None:
        raise UnusableTemplateError("container", container, "name a container of the pod template")
    notes: list[str] = []
    volumes = [volume for volume in map(_without_tokens, _dicts(spec.get("volumes"))) if volume is not None]
    kinds = {str(volume.get("name")): _kind(volume) for volume in volumes}
    secrets = {str(volume["name"]) for volume in volumes if _is_secret(volume)}

    init_containers = _dicts(spec.get("initContainers"))
    kept_server = {name: value for name, value in server.items() if name not in _SERVER_LEFT_OUT}
    for holder in [*init_containers, kept_server]:
        hidden = secrets if holder is kept_server else set()
        _mount(holder, kinds, hidden, arguments, notes)
    _share_resources(spec, kept_server)
    used = {
        place.get("name")
        for holder in [*init_containers, kept_server]
        for place in [*_mounts(holder), *_dicts(holder.get("volumeDevices"))]
    }
    pod = {name: value for name, value in spec.items() if name not in _POD_LEFT_OUT}
    pod["volumes"] = [volume for volume in volumes if volume.get("name") in used]
    _claims(pod, [*init_containers, kept_server])
    notes += _left_out_containers(spec, server, kinds)
    notes += [f"{name} is not used in a trial" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return KeptTemplate(pod, _annotations(template), init_containers, kept_server, tuple(notes))


def covering_mount(server: Mapping[str, Any], path: str) -> str | None:
    """Name of the volume that holds ``path`` in a container; None when the path lies in its image."""
    best: tuple[int, str] | None = None
    for mount in _mounts(server):
        place = PurePosixPath(str(mount.get("mountPath")))
        if PurePosixPath(path).is_relative_to(place) and (best is None or len(place.parts) > best[0]):
            best = len(place.parts), str(mount.get("name"))
    return best and best[1]


def _mount(
    holder: Object, kinds: Mapping[str, str], hidden: Iterable[str], arguments: Sequence[str], notes: list[str]
) -> None:
    """Make the mounts of a container read-only, and take away those that it must not have."""
    kept = []
    for mount in _mounts(holder):
        name = str(mount.get("name"))
        if name not in kinds:
            notes.append(f"volume {name} is not in a trial: it holds a service account's token")
            continue
        if name in hidden and not _is_named(str(mount.get("mountPath")), arguments):
            notes.append(f"volume {name} is not in a trial's server: it holds a Secret that no argument names")
            continue
        if kinds[name] not in _WRITABLE:
            mount["readOnly"] = True
            if mount.get("mountPropagation") == "Bidirectional":
                del mount["mountPropagation"]
        kept.append(mount)
    if "volumeMounts" in holder:
        holder["volumeMounts"] = kept


def _is_named(place: str, arguments: Sequence[str]) -> bool:
    return any(PurePosixPath(word).is_relative_to(place) for word in arguments if word.startswith("/"))


def _without_tokens(volume: Object) -> Object | None:
    """The volume without tokens of a service account; None when nothing is left."""
    projected = volume.get("projected")
    if not isinstance(projected, dict):
        return volume
    projected["sources"] = [s for s in _dicts(projected.get("sources")) if "serviceAccountToken" not in s]
    return volume if projected["sources"] else None


def _kind(volume: Mapping[str, Any]) -> str:
    # A volume that states nothing is an emptyDir.
    return next((name for name in volume if name != "name"), "emptyDir")


def _is_secret(volume: Mapping[str, Any]) -> bool:
    projected = volume.get("projected")
    sources = _dicts(projected.get("sources")) if isinstance(projected, dict) else []
    return "secret" in volume or any("secret" in source for source in sources)


def _share_resources(spec: Mapping[str, Any], server: Object) -> None:
    """Resources of the whole pod are the server's where it has none of its own: here it has company."""
    shared = spec.get("resources")
    if isinstance(shared, dict) and not server.get("resources"):
        server["resources"] = shared


def _claims(pod: Object, holders: Sequence[Mapping[str, Any]]) -> None:
    """Device claims that a kept container uses; each pod gets its own from the claim template."""
    pod.pop("resources", None)
    used = {claim.get("name") for holder in holders for claim in _dicts((holder.get("resources") or {}).get("claims"))}
    kept = [claim for claim in _dicts(pod.pop("resourceClaims", None)) if claim.get("name") in used]
    for claim in kept:
        if claim.get("resourceClaimName") is not None:
            raise UnusableTemplateError(
                "resourceClaimName",
                claim["resourceClaimName"],
                "is production's own device: name a resourceClaimTemplateName, so that a trial gets another one",
            )
    if kept:
        pod["resourceClaims"] = kept


def _left_out_containers(spec: Mapping[str, Any], server: Mapping[str, Any], kinds: Mapping[str, str]) -> list[str]:
    read = {mount.get("name") for mount in _mounts(server)}
    notes = []
    for other in _dicts(spec.get("containers")):
        if other is server:
            continue
        note = f"container {other.get('name')} is not in a trial: a Job waits for every container to end"
        filled = sorted({str(m.get("name")) for m in _mounts(other)} & read)
        if any(kinds.get(name) in _WRITABLE for name in filled):
            note += f"; where the server needs what it writes to {', '.join(filled)}, make it an init container"
        notes.append(note)
    return notes


def _annotations(template: Mapping[str, Any]) -> dict[str, str]:
    stated = (template.get("metadata") or {}).get("annotations") or {}
    return {name: str(value) for name, value in stated.items() if not name.startswith(_ANNOTATIONS_LEFT_OUT)}


def _mounts(holder: Mapping[str, Any]) -> list[Object]:
    return _dicts(holder.get("volumeMounts"))


def _dicts(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
