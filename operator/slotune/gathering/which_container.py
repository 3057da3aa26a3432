"""Which container of a Deployment's pods is diagnosed, and with what command line.

More is taken for a server here than in tuning, which writes: one that a shell starts, and one that is a native sidecar
(an init container that runs as long as the pod does).
"""

from __future__ import annotations

from dataclasses import replace

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.api.server_container import native_sidecars, servers_among
from slotune.controller.listening import Listening, listening_in
from slotune.gathering.deployments import Meant
from slotune.gathering.look_errors import NoServerContainerError
from slotune.gathering.optional_reads import OptionalReads
from slotune.gathering.shell_scripts import without_shell
from slotune.tuning.pod_reading import PodReading

__all__ = ["listening_of", "running_container", "server_name"]


def server_name(meant: Meant, stated: str | None, reads: OptionalReads) -> str:
    """Name of the container that is llama-server.

    Args:
        meant: the Deployment; the LlamaDeployment about it may name the container.
        stated: what a person said; None: found.
        reads: hears what was chosen.

    Raises:
        NoServerContainerError: none or several are, or the one that was named is not there.
    """
    template = PodTemplate.from_manifest(meant.deployment["spec"]["template"])
    own = tuple(without_shell(one) for one in template.spec.containers)
    beside = tuple(without_shell(one) for one in native_sidecars(template))
    names = [one.name for one in (*own, *beside)]
    if (wanted := stated or meant.container) is not None:
        if wanted not in names:
            raise NoServerContainerError(meant.name, wanted, names)
        return wanted
    servers = (*servers_among(own), *servers_among(beside))
    if len(servers) > 1:
        raise NoServerContainerError(meant.name, None, names, [one.name for one in servers])
    if not servers:
        if len(names) > 1:
            raise NoServerContainerError(meant.name, None, names)
        reads.note(f"container {names[0]} is taken for llama-server, although nothing in the Deployment says so")
        return names[0]
    if len(names) > 1:
        reads.note(f"container {servers[0].name} is taken for llama-server; --container names another")
    return servers[0].name


def running_container(template: PodTemplate, name: str) -> Container | None:
    """The container of that name, with the command line that runs in it."""
    every = (*template.spec.containers, *native_sidecars(template))
    return next((without_shell(one) for one in every if one.name == name), None)


def listening_of(container: Container | None, reading: PodReading | None) -> Listening:
    """By its flags; where they name no port, the only one that its container declares is a better guess than 8080."""
    if container is None or reading is None:
        return Listening()
    found = listening_in(reading)
    declared = [one.get("containerPort") for one in (container.model_extra or {}).get("ports") or ()]
    if found.port == Listening().port and len(declared) == 1 and isinstance(declared[0], int):
        return replace(found, port=declared[0])
    return found
