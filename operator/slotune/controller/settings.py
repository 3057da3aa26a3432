"""What an operator is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of one operator process."""

    trial_image: str
    """slotune's own image: load client and survey run from it."""
    namespaces: tuple[str, ...] = ()
    """Namespaces that are watched; none means all."""
    max_trials: int = 1
    """Trials that may run at the same time, in all namespaces together."""
    image_pull_policy: str = "IfNotPresent"
    identity: str = "slotune"
    """Name of this operator's pod, for events."""
    version: str = ""
    health_port: int = 8080
    metrics_port: int = 9090
    kubeconfig: str | None = field(default=None, repr=False)
    """None: the cluster that the pod runs in, or what the environment names."""
