"""What was found of a trial, as its status says it: bounded, without secrets and prompts."""

from __future__ import annotations

import json
from dataclasses import replace

from slotune.api.v1alpha1.trial_status import LlamaTrialStatus
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Finding
from slotune.diagnose.findings import ENTRIES, findings
from slotune.llama.failures import FailureClass
from slotune.tuning.finding_status import findings_status
from slotune.tuning.trial_objects import completed_status
from tests.diagnose.test_findings import PROMISE, QUEUE, UNIQUE, result

WHEN = "2026-01-31T12:00:00Z"


def test_a_status_names_the_cause_under_its_identifier_with_the_settings_to_try() -> None:
    late = result(QUEUE)
    status = completed_status(late, completed_at=WHEN, findings=findings(late, PROMISE, UNIQUE)).to_manifest()
    assert status["findings"] == [
        {
            "id": "SLT050",
            "code": "TooFewSlots",
            "severity": "Warning",
            "confidence": "Likely",
            "message": "queue 2.4 s of 2.8: 8 slots, all busy",
            "evidence": (
                "trial  requests on average: queue 2.4 s, prefill 0.40 s, contention 0 ms, overhead 10 ms; "
                "7.9 of 8 slots busy; 0 % of prompt tokens cached"
            ),
            "knobs": ["parallelSlots", "cacheTypeK", "cacheTypeV"],
        }
    ]


def test_nothing_found_says_nothing() -> None:
    assert completed_status(result(), completed_at=WHEN).findings == ()


def test_every_entry_of_the_catalogue_can_be_written_down() -> None:
    seen = (Evidence(Source.TRIAL, "a number"),)
    for entry in ENTRIES:
        status = LlamaTrialStatus(findings=findings_status([Finding(entry, "because of that", seen)]))
        assert LlamaTrialStatus.from_manifest(json.loads(json.dumps(status.to_manifest()))) == status


def test_what_is_too_long_or_too_much_is_cut() -> None:
    entry = replace(ENTRIES[0], knobs=("k" * 999,) * 20)
    many = [Finding(entry, "word " * 2000, (Evidence(Source.TRIAL, "a number"),))] * 40
    written = LlamaTrialStatus(findings=findings_status(many)).findings
    assert len(written) == 16
    assert (len(written[0].message), len(written[0].knobs)) == (1024, 8)


def test_neither_secrets_nor_prompts_are_told() -> None:
    crashed = result(failure=FailureClass.CRASHED)
    said = 'its last line: --api-key tops3cret {"prompt": "my diary"}'
    crashed = replace(crashed, verdict=replace(crashed.verdict, reason=said))
    [found] = findings_status(findings(crashed, PROMISE, UNIQUE))
    assert "tops3cret" not in found.message
    assert "diary" not in found.message
