"""Where a running trial stands: as its client says it, and as its status shows it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Literal

from slotune.api.v1alpha1.trial_status import TrialProgress
from slotune.sandbox.protocol import Progress
from slotune.tuning import status_values as values

__all__ = ["progress_of", "progress_status"]

Stage = Literal["Starting", "Probing", "WarmingUp", "Measuring", "Extending", "Comparing", "Stopping"]

_STAGES: Final[MappingProxyType[str, Stage]] = MappingProxyType(
    {
        "starting": "Starting",
        "probing": "Probing",
        "warming up": "WarmingUp",
        "measuring": "Measuring",
        "extending": "Extending",
        "comparing": "Comparing",
        "stopping": "Stopping",
    }
)
_SAID: Final = {stage: words for words, stage in _STAGES.items()}


def progress_status(progress: Progress, *, updated_at: str | None = None) -> TrialProgress:
    """``progress`` for a status. A stage that this version does not know counts as measuring; no count is below 0."""
    return TrialProgress(
        stage=_STAGES.get(progress.stage, "Measuring"),
        run=values.count(progress.run),
        runs=values.count(progress.runs),
        requests_done=values.count(progress.requests_done),
        requests_planned=values.count(progress.requests_planned),
        violations=values.count(progress.violations),
        violation_limit=values.count(progress.violation_limit),
        elapsed_seconds=values.exact(progress.elapsed_s),
        remaining_seconds=values.exact(progress.remaining_worst_s),
        updated_at=updated_at,
    )


def progress_of(said: TrialProgress) -> Progress:
    """:func:`progress_status` turned round."""
    return Progress(
        stage=_SAID[said.stage],
        run=said.run,
        runs=said.runs,
        requests_done=said.requests_done,
        requests_planned=said.requests_planned,
        violations=said.violations,
        violation_limit=said.violation_limit,
        elapsed_s=0.0 if said.elapsed_seconds is None else float(said.elapsed_seconds),
        remaining_worst_s=None if said.remaining_seconds is None else float(said.remaining_seconds),
    )
