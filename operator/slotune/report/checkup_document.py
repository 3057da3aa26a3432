"""What ``slotune diagnose -o json`` prints: every server with its findings and its checklist, as plain data.

Every key is always there, null when it is not known; a section that is not known has ``known`` and ``needs`` alone.
A share is a number from 0 to 1, times are in seconds. The texts of the catalogue stand beside each finding, so that a
ticket made from it needs nothing else. ``docs/diagnosis.md`` has the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slotune.diagnose.checkup import Checked, Outcome
from slotune.diagnose.evidence import Source
from slotune.diagnose.finding import Finding
from slotune.diagnose.symptoms import PodFacts, ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_story import LogStory
from slotune.report.checkup import Examined
from slotune.report.checkup_needs import still_needed
from slotune.report.figures import finite
from slotune.report.redaction import said_in_public

__all__ = ["CHECKUP_SCHEMA", "checkup_document"]

CHECKUP_SCHEMA = "slotune.dev/diagnosis/v1"
"""Changes when a reader of an older document would go wrong: a key renamed or removed, a unit changed."""


def checkup_document(
    examined: Sequence[Examined], *, notes: Sequence[str] = (), generated_at: str = "", version: str = ""
) -> dict[str, Any]:
    """JSON-safe and in a fixed order."""
    return {
        "schema": CHECKUP_SCHEMA,
        "generated_at": generated_at,
        "slotune_version": version,
        "healthy": _all_healthy([one.checkup.is_healthy for one in examined]),
        "notes": [said_in_public(note) for note in notes],
        "servers": [_server(one) for one in examined],
    }


def _all_healthy(said: Sequence[bool | None]) -> bool | None:
    """None when nothing is wrong, but too little of one could be looked at."""
    return False if False in said else None if None in said else True


def _server(one: Examined) -> dict[str, Any]:
    checked = one.checkup.checked
    return {
        "name": one.symptoms.name,
        "healthy": one.checkup.is_healthy,
        "doubt": one.checkup.doubt if one.checkup.is_healthy is None else None,
        "questions": len(checked),
        "questions_decided": sum(item.outcome is not Outcome.UNDECIDED for item in checked),
        "questions_looked_at": sum(item.looked_at for item in checked),
        "checks": sum(item.checks for item in checked),
        "checks_decided": sum(item.decided for item in checked),
        "looked_at": _looked_at(one.symptoms),
        "findings": [_finding(finding) for finding in one.checkup.findings],
        "checklist": [_item(item, one.symptoms) for item in checked],
        "sections": {section.key: dict(section.document) for section in one.sections},
    }


def _looked_at(symptoms: Symptoms) -> dict[str, Any]:
    pod, node, device, gpu, model = symptoms.pod, symptoms.node, symptoms.device, symptoms.gpu, symptoms.model
    promise = symptoms.promise
    return {
        "log": None if symptoms.log is None else _log(symptoms.log),
        "server": None if symptoms.server is None else _look(symptoms.server),
        "probe": None if symptoms.probe is None else _probe(symptoms.probe),
        "pod": None if pod is None else _pod(pod),
        "node": None if node is None else {"name": node.name},
        "device": None if device is None else {"name": device.name, "looks": device.samples},
        "gpu": None if gpu is None else {"name": gpu.name},
        "model": None if model is None else {"architecture": model.architecture, "quantization": model.quantization},
        "promise": None
        if promise is None
        else {
            "ttft_s": finite(promise.ttft_s),
            "tokens_per_second_per_user": finite(promise.tokens_per_second_per_user),
            "violation_share": finite(promise.violation_share),
        },
    }


def _log(log: LogStory) -> dict[str, Any]:
    return {
        "source": log.source,
        "lines": log.lines,
        "size_bytes": log.size_bytes,
        "starts": log.starts,
        "last_start_line": log.last_start_line,
        "requests_before": log.requests_before,
        "verbosity": log.verbosity,
        "build": log.build,
        "seconds": finite(log.seconds),
        "requests": None if log.requests is None else log.requests.requests,
    }


def _pod(pod: PodFacts) -> dict[str, Any]:
    return {
        "name": pod.name,
        "image": pod.image,
        "phase": pod.phase,
        "ready": pod.ready,
        "restarts": pod.restarts,
        "reasons": [said_in_public(one.text) for one in pod.events if one.source in (Source.POD, Source.EVENT)],
    }


def _look(look: ServerLook) -> dict[str, Any]:
    return {
        "url": look.url,
        "build": None if look.props is None else look.props.build,
        "slots": None if look.props is None else look.props.total_slots,
        "context_per_slot": None if look.props is None else look.props.context_per_slot,
        "looks_at_metrics": look.looks_at_metrics or (look.metrics is not None) + (look.metrics_later is not None),
        "between_s": finite(look.between_s),
        "refused": {endpoint: said_in_public(why) for endpoint, why in look.refused.items()},
    }


def _probe(probe: ProbeFacts) -> dict[str, Any]:
    return {
        "requests": probe.requests,
        "prompt_tokens": probe.prompt_tokens,
        "overhead_s": finite(probe.overhead_s),
        "prefill_tokens_per_s": finite(probe.prefill_tokens_per_s),
        "decode_step_s": finite(probe.decode_step_s),
        "was_idle": probe.was_idle,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    entry, cost = finding.entry, finding.cost
    return {
        "id": finding.id,
        "code": finding.code,
        "item": entry.item.value[0],
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "title": entry.title,
        "sentence": said_in_public(finding.sentence),
        "evidence": [
            {"source": evidence.source.value, "line": evidence.line, "text": said_in_public(evidence.text)}
            for evidence in finding.evidence
        ],
        "cost": {
            "ttft_s": finite(cost.ttft_s),
            "ttft_share": finite(cost.ttft_share),
            "speed_share": finite(cost.speed_share),
            "refused_share": finite(cost.refused_share),
        },
        "cause": entry.cause,
        "try_first": said_in_public(finding.first or entry.first),
        "avoid": entry.avoid,
        "verify": entry.verify,
        "knobs": list(finding.knobs),
        "link": entry.link,
    }


def _item(checked: Checked, symptoms: Symptoms) -> dict[str, Any]:
    name, question = checked.item.value
    return {
        "item": name,
        "question": question,
        "outcome": checked.outcome.value,
        "findings": [finding.id for finding in checked.findings],
        "clear": [said_in_public(clear.sentence) for clear in checked.clear],
        "needs": [still_needed(one.needs, symptoms) for one in checked.undecided],
    }
