"""What keeps a pod from being ready, as its status says it: the reason is Kubernetes' own word."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Role", "Trouble"]


class Role(enum.StrEnum):
    """Whose trouble it is."""

    POD = "pod"
    """Of the pod as a whole: no node takes it, say."""
    SERVER = "server"
    INIT = "init container"
    """One that has to end before the server is started."""
    BESIDE = "container"
    """One that goes on beside the server: a pod is ready when all of these are."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing."""

    reason: str
    """``ImagePullBackOff``, ``Unschedulable``, ``CrashLoopBackOff``, ``Error``, …"""
    message: str = ""
    """Kubernetes' own, on one line; empty for none."""
    role: Role = Role.POD
    container: str = ""
    """Its name; empty of the pod."""
