"""Names that objects in the cluster carry, each said once: what finds a child again after every process has died."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BORROW_MANAGER",
    "CONTEXT_LABEL",
    "DEPLOYMENT_LABEL",
    "FINALIZER",
    "LOAD_CLIENT",
    "MADE_FROM_ANNOTATION",
    "MANAGED_BY",
    "MANAGED_BY_LABEL",
    "ROLLOUT_MANAGER",
    "SANDBOX_LABEL",
    "SANDBOX_MANAGER",
    "SERVING_LABEL",
    "STATUS_MANAGER",
    "SURVEY_LABEL",
    "TRIAL_LABEL",
]

FINALIZER: Final = "slotune.dev/restore"
"""On every LlamaDeployment that was seen: production gets back what was borrowed before the object may vanish."""

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "slotune"

DEPLOYMENT_LABEL: Final = "slotune.dev/deployment"
"""On all that is made for a LlamaDeployment: its name."""
TRIAL_LABEL: Final = "slotune.dev/trial"
"""On a trial's Job and pod: the LlamaTrial's name."""
SERVING_LABEL: Final = "slotune.dev/serves"
"""On pods that serve production, and on nothing else: the LlamaDeployment's name. The Service selects by it alone, so
that no trial ever answers a user."""
CONTEXT_LABEL: Final = "slotune.dev/context"
"""On a LlamaTrial: digest of all that is equal for every trial of its search, so that its result is found by others."""
SURVEY_LABEL: Final = "slotune.dev/survey"
"""On a survey's Job and ConfigMap: digest of what was looked at."""
SANDBOX_LABEL: Final = "slotune.dev/sandbox"
"""On every pod that is looked at or measured and never serves, trial or survey: what the NetworkPolicy selects."""

MADE_FROM_ANNOTATION: Final = "slotune.dev/made-from"
"""On a Job of ours: digest of its spec as it was sent. One that still waits is made anew when it would be another."""

STATUS_MANAGER: Final = "slotune-status"
"""Field manager of statuses."""
SANDBOX_MANAGER: Final = "slotune-sandbox"
"""Field manager of trials, Jobs, NetworkPolicies and records."""
ROLLOUT_MANAGER: Final = "slotune-rollout"
"""Field manager of what serves production, and of the patch that is ready to be applied."""

BORROW_MANAGER: Final = "slotune-borrow"
"""Field manager of the replicas while production's GPU is borrowed, and after: whoever had set them before is not known
any more, so a rollout leaves them alone as it would have left theirs."""

LOAD_CLIENT: Final = "load-client"
"""Name of the container that sends the requests."""
