"""What is wanted of production: the spec's rollout policy and the recommendation that it is about."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from slotune.api.v1alpha1 import LlamaDeployment, Recommendation, Rollout

__all__ = ["Intent"]


@dataclass(frozen=True, slots=True)
class Intent:
    """What a plan is made for. All of it comes from the LlamaDeployment."""

    policy: Rollout
    wanted: Recommendation | None
    """What should run; None: the search has found nothing, or has not ended."""
    generation: int
    """Version of the spec."""
    owned: bool
    """Whether slotune owns the Deployment (spec.template), or only tunes it (spec.targetRef)."""
    container: str
    """Name of llama-server's container, for messages."""
    baseline_hash: str | None = None
    """Candidate that runs where no candidate was rolled out."""
    keeps_slo: bool | None = None
    """Whether what runs today was measured to keep the SLO; None: it was not shown."""
    writes_args: bool = True
    """Whether the change is made in the container's args; False: in its environment or a ConfigMap."""
    source: str | None = None
    """Digest of the pod template that would be sent for :attr:`wanted`, in owned mode: with a changed ``spec.template``
    the same candidate is another pod. None: not compared."""
    suspended: bool = False

    @classmethod
    def from_deployment(
        cls,
        deployment: LlamaDeployment,
        container: str,
        *,
        keeps_slo: bool | None,
        writes_args: bool = True,
        source: str | None = None,
    ) -> Intent:
        """Of a LlamaDeployment with its status. The recommendation counts only while it is about this spec: the caller
        removes it from the status, or passes a status without it, when a new search has begun."""
        spec, status = deployment.spec, deployment.status
        return cls(
            policy=spec.rollout,
            wanted=status.recommendation if status else None,
            generation=deployment.metadata.generation or 0,
            owned=spec.template is not None,
            container=container,
            baseline_hash=status.baseline.candidate_hash if status and status.baseline else None,
            keeps_slo=keeps_slo,
            writes_args=writes_args,
            source=source,
            suspended=spec.suspend,
        )

    @property
    def saving_percent(self) -> Decimal | None:
        """Saved against today's cost; None when nobody knows."""
        if self.wanted is None or self.wanted.saving_percent is None:
            return None
        return Decimal(self.wanted.saving_percent)
