"""Why a Deployment can't be looked at: one class per cause that a person acts on, each with its cure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slotune.controller.kinds import Kind
from slotune.tuning.errors import InvalidInputError

__all__ = [
    "MissingRightError",
    "NoClusterError",
    "NoPodsError",
    "NoServerContainerError",
    "NoSuchContextError",
    "NoSuchDeploymentError",
    "NoSuchKubeconfigError",
    "NotLlamaServerError",
    "UnreachableClusterError",
    "right",
]

FIELD: Final = "--deployment"
MOST_NAMES: Final = 10
"""Names that an error lists."""
RIGHTS: Final = "docs/diagnosis.md#rights-in-a-cluster"
"""Where the role is that has all of them."""


class NoClusterError(InvalidInputError):
    """Nothing says which cluster is meant."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(FIELD, name, f"no cluster is known: {why}")


class NoSuchKubeconfigError(InvalidInputError):
    """A file that was named is not there, or is no kubeconfig."""


class NoSuchContextError(InvalidInputError):
    """No kubeconfig has a context of that name, or it leads nowhere."""


class UnreachableClusterError(InvalidInputError):
    """The API server does not answer."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(FIELD, name, f"{why}: is the context of your kubeconfig the right one, and the cluster up?")


class MissingRightError(InvalidInputError):
    """The caller may not read what nothing can be said without."""

    def __init__(self, name: str, missing: str, status: int | None) -> None:
        self.missing = missing
        """Verb, resource and namespace."""
        cure = (
            "the API server does not take your credentials (HTTP 401): log in again"
            if status == 401
            else f"your account lacks the right to {missing}: ask for the role of {RIGHTS}"
        )
        super().__init__(FIELD, name, cure)


class NoSuchDeploymentError(InvalidInputError):
    """There is neither a Deployment nor a LlamaDeployment of that name."""


class NotLlamaServerError(InvalidInputError):
    """What answers in its pods is another program, and their logs are not llama-server's either."""


class NoPodsError(InvalidInputError):
    """The Deployment is there, and no pod of it is."""


class NoServerContainerError(InvalidInputError):
    """Nothing tells which container is llama-server, or the one that was named is not there."""

    def __init__(self, deployment: str, named: str | None, there: Sequence[str], servers: Sequence[str] = ()) -> None:
        names = ", ".join(there)
        if named is not None:
            cure = f"Deployment {deployment} has no such container: name one of {names}"
        elif servers:
            cure = f"{len(servers)} of its containers are llama-server: name one with --container: {', '.join(servers)}"
        else:
            cure = f"none of its containers is llama-server for certain: name it with --container, one of {names}"
        super().__init__(FIELD if named is None else "--container", deployment if named is None else named, cure)


def right(verb: str, kind: Kind, namespace: str | None, subresource: str = "") -> str:
    """``list pods in namespace chat``, ``get deployments.apps in namespace chat``, ``get nodes``."""
    resource = kind.plural + (f"/{subresource}" if subresource else "") + (f".{kind.group}" if kind.group else "")
    return f"{verb} {resource}" + ("" if namespace is None else f" in namespace {namespace}")
