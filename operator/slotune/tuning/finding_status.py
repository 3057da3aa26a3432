"""What was found of a trial, in the form that its status takes, and back what no number of it would tell again."""

from __future__ import annotations

from collections.abc import Sequence

from slotune.api.v1alpha1.trial_status import TrialFinding
from slotune.diagnose.failed_trials import entry_of
from slotune.diagnose.finding import Finding
from slotune.diagnose.trial_server import RULES
from slotune.llama.failures import FailureClass
from slotune.report.redaction import said_in_public
from slotune.search.noticed import Noticed
from slotune.tuning import status_values as values

__all__ = ["findings_status", "noticed_of"]

_MOST_FINDINGS, _MOST_KNOBS, _LONGEST_MESSAGE, _LONGEST_EVIDENCE = 16, 8, 1024, 512
_OF_SERVERS = frozenset(rule.id for rule in RULES)


def findings_status(findings: Sequence[Finding]) -> tuple[TrialFinding, ...]:
    """The first of them, each in one line without secrets and paths."""
    return tuple(
        TrialFinding(
            id=found.id,
            code=values.word(found.code),
            severity=found.severity.value,
            confidence=found.confidence.value,
            message=values.line(said_in_public(found.sentence), _LONGEST_MESSAGE),
            evidence=values.line(said_in_public(str(found.evidence[0])), _LONGEST_EVIDENCE),
            knobs=tuple(values.line(knob) for knob in found.knobs[:_MOST_KNOBS]),
        )
        for found in findings[:_MOST_FINDINGS]
    )


def noticed_of(
    findings: Sequence[TrialFinding], failure: FailureClass | None, knob: str | None, reason: str
) -> tuple[Noticed, ...]:
    """What was noticed of the server; the end of the trial (``failure`` and its setting, in words) follows from its
    verdict, and all others from its numbers."""
    own = None if failure is None else entry_of(failure, knob, reason).id
    return tuple(
        Noticed(one.id, one.severity, one.confidence, one.message, one.evidence)
        for one in findings
        if one.id in _OF_SERVERS and one.id != own
    )
