"""What was found of one trial, as plain data: each finding with the entry of the catalogue that says more."""

from __future__ import annotations

from typing import Any

from slotune.diagnose.findings import trial_findings
from slotune.report.figures import finite
from slotune.report.redaction import said_in_public
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult

__all__ = ["diagnosis_document"]


def diagnosis_document(problem: Problem, result: TrialResult) -> list[dict[str, Any]]:
    """The first cause first; empty when nothing stands out. Shares lie in 0..1, times are seconds."""
    return [
        {
            "id": found.id,
            "code": found.code,
            "severity": found.severity.value,
            "confidence": found.confidence.value,
            "sentence": said_in_public(found.sentence),
            "evidence": [said_in_public(str(seen)) for seen in found.evidence],
            "knobs": list(found.knobs),
            "ttft_s": finite(found.cost.ttft_s),
            "ttft_share": finite(found.cost.ttft_share),
            "speed_share": finite(found.cost.speed_share),
            "link": found.entry.link,
        }
        for found in trial_findings(problem, result)
    ]
