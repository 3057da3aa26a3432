"""What was found of a trial, in the form that its status takes. One way only: findings follow from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from slotune.api.v1alpha1.trial_status import TrialFinding
from slotune.diagnose.finding import Finding
from slotune.report.redaction import said_in_public
from slotune.tuning import status_values as values

__all__ = ["findings_status"]

_MOST_FINDINGS, _MOST_KNOBS, _LONGEST_MESSAGE = 16, 8, 1024


def findings_status(findings: Sequence[Finding]) -> tuple[TrialFinding, ...]:
    """The first of them, each in one line without secrets and paths."""
    return tuple(
        TrialFinding(
            id=found.id,
            code=values.word(found.code),
            severity=found.severity.value,
            confidence=found.confidence.value,
            message=values.line(said_in_public(found.sentence), _LONGEST_MESSAGE),
            knobs=tuple(values.line(knob) for knob in found.knobs[:_MOST_KNOBS]),
        )
        for found in findings[:_MOST_FINDINGS]
    )
