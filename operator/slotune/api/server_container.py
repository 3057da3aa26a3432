"""Which container of a pod is llama-server, and where in its command line the program stands.

A container is told by what it starts, by llama-server's own variables, or by its image, in this order of trust.
Sidecars such as proxies and log shippers have none of these, so a person need not name the container in most pods.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from pydantic import ValidationError

from slotune.api.kubernetes_types import Container, PodTemplate

__all__ = [
    "LAUNCHERS",
    "SHELLS",
    "is_program",
    "llama_servers",
    "native_sidecars",
    "program_at",
    "server_container",
    "servers_among",
    "tool_words",
]

_PROGRAM: Final = re.compile(r"(ik[-_])?llama-server([-_]\w+)?(\.exe)?")

SHELLS: Final = frozenset({"sh", "bash", "ash", "dash", "zsh", "ksh", "busybox"})

LAUNCHERS: Final = frozenset(
    {"tini", "tini-static", "dumb-init", "catatonit", "docker-init", "nvidia_entrypoint.sh", "env", "nice", "ionice",
     "numactl", "taskset", "chrt", "stdbuf", "setpriv", "gosu", "su-exec", "prlimit"}
)  # fmt: skip
"""Programs that start the one that stands behind them, and change nothing about its flags."""

_IMAGE: Final = re.compile(r"llama[._-]?cpp|llama-server|(^|[/_.-])llamafile")
_OTHER_IMAGE: Final = re.compile(r"python|swap|rpc|exporter|proxy|webui|download")
"""In the name of an image about llama.cpp that is not its server."""

_FLAG_VARIABLE: Final = "LLAMA_ARG_"


def is_program(word: str) -> bool:
    """Whether ``word`` is llama-server, by the name of the file."""
    return _PROGRAM.fullmatch(PurePosixPath(word).name) is not None


def program_at(container: Container) -> int | None:
    """Index of llama-server in ``command`` with ``args`` behind it; None: the image's entry point starts it, or none.

    A word further back is a value, such as a name that the server answers to.
    """
    command = list(container.command or ())
    args = list(container.args or ())
    here = next((place for place, word in enumerate(command) if is_program(word)), None)
    if here is not None:
        return here
    if not command and args and not is_program(args[0]) and PurePosixPath(args[0]).name not in LAUNCHERS:
        return None
    if command and PurePosixPath(command[0]).name not in LAUNCHERS:
        return None
    return next((len(command) + place for place, word in enumerate(args) if is_program(word)), None)


def tool_words(container: Container) -> int:
    """How many of ``args`` choose the server among the tools of llama.cpp's full image, which starts a script."""
    image = (container.image or "").partition("@")[0].rpartition("/")[2]
    is_full = image.partition(":")[2].startswith("full")
    chosen = tuple(container.args or ())[:1]
    return 1 if is_full and not container.command and chosen in {("--server",), ("-s",)} else 0


def llama_servers(template: PodTemplate) -> tuple[Container, ...]:
    """Containers that are llama-server for certain, native sidecars behind the others.

    Each of the two kinds is judged by the most trusted sign that any of it has: a sidecar is there to help, and that it
    starts the program openly says nothing about a container that leaves it to its image.
    """
    return (*servers_among(template.spec.containers), *servers_among(native_sidecars(template)))


def native_sidecars(template: PodTemplate) -> tuple[Container, ...]:
    """Init containers that run as long as the pod does."""
    stated = (template.spec.model_extra or {}).get("initContainers")
    found = []
    for one in stated if isinstance(stated, list) else []:
        if isinstance(one, dict) and one.get("restartPolicy") == "Always":
            try:
                found.append(Container.model_validate(one))
            except ValidationError:  # the API server has the last word about it
                continue
    return tuple(found)


def server_container(template: PodTemplate, name: str | None) -> Container | None:
    """The container of that name. Without a name: the only one of the pod, or the only one that is llama-server."""
    stated = template.container(name)
    if name is not None:
        return stated
    found = llama_servers(template)
    if len(found) == 1 and found[0] in template.spec.containers:
        return found[0]
    return stated if not found else None


def servers_among(containers: Sequence[Container]) -> tuple[Container, ...]:
    """Those that are llama-server by the most trusted sign that any of them has."""
    for sign in (_starts_it, _has_its_variables, _has_its_image):
        found = tuple(container for container in containers if sign(container))
        if found:
            return found
    return ()


def _starts_it(container: Container) -> bool:
    return program_at(container) is not None


def _has_its_variables(container: Container) -> bool:
    return any(variable.name.startswith(_FLAG_VARIABLE) for variable in container.env or ())


def _has_its_image(container: Container) -> bool:
    name = (container.image or "").partition("@")[0].lower()
    return _IMAGE.search(name) is not None and _OTHER_IMAGE.search(name) is None
