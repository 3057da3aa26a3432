"""Events: one short line for a person at each transition, and none in between.

What happened follows from the conditions before and after, so an operator that starts anew says nothing twice. Of
several conditions that change for one reason, the first of :data:`TELLING_ORDER` speaks. The object's name is a
function of what it says: posting it again meets the one that is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from slotune.api.kubernetes_types import Condition
from slotune.api.labels import MANAGED_BY, MANAGED_BY_LABEL
from slotune.controller.conditions import condition
from slotune.controller.reasons import BAD_NEWS, ConditionType, Reason
from slotune.report.redaction import said_in_public
from slotune.search.trial import Purpose, TrialResult
from slotune.tuning.status_values import line, word
from slotune.verdict.verdicts import Outcome

__all__ = ["MOST_NOTE_BYTES", "TELLING_ORDER", "EventNote", "event_object", "transitions", "trial_ended"]

MOST_NOTE_BYTES: Final = 1024
"""Bytes of a note that the API server takes (``NoteLengthLimit`` in pkg/apis/core/validation/events.go)."""

TELLING_ORDER: Final = (
    ConditionType.STALLED,
    ConditionType.ROLLED_OUT,
    ConditionType.SEARCH_COMPLETED,
    ConditionType.BASELINE_MEASURED,
    ConditionType.SLO_MET,
    ConditionType.TARGET_RESOLVED,
    ConditionType.RECONCILING,
    ConditionType.READY,
)

_ACTIONS: Final = {
    ConditionType.TARGET_RESOLVED: "ReadTarget",
    ConditionType.BASELINE_MEASURED: "MeasureBaseline",
    ConditionType.SEARCH_COMPLETED: "Search",
    ConditionType.SLO_MET: "JudgeProduction",
    ConditionType.ROLLED_OUT: "RollOut",
}
_NOT_WORTH_A_LINE: Final = frozenset({Reason.PENDING, Reason.NO_RECOMMENDATION})
"""That nothing is known yet, or nothing was found, is said by another condition, or by none."""
_NO_REFERENCE: Final = (
    "no answers can be compared, so weights and KV types other than today's are set aside, and the search goes on with "
    "the rest. Mark a model that runs here as the reference, or allow a GPU class that holds this one. Why: "
)
_REPORTING_CONTROLLER: Final = "slotune.dev/operator"
_LONGEST_OBJECT_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class EventNote:
    """What is to be said."""

    type: Literal["Normal", "Warning"]
    reason: str
    """CamelCase."""
    action: str
    """CamelCase: what slotune was at."""
    note: str
    """One sentence or a few; what is too long for an event is cut."""
    about: str = ""
    """Tells two happenings apart that read the same, such as the time of a transition or the name of a trial."""


def transitions(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> tuple[EventNote, ...]:
    """What is worth a line when ``before`` became ``after``: changes of status or reason, each reason once.

    First sight is none, nor is the end of Reconciling or Stalled: what comes instead says more. A changed message alone
    (progress) is none either.
    """
    notes: dict[str, EventNote] = {}
    for kind in TELLING_ORDER:
        was, now = condition(before, kind), condition(after, kind)
        if now is None or now.status == "Unknown" or now.reason in _NOT_WORTH_A_LINE:
            continue
        if was is None and now.reason == Reason.SUSPENDED:
            continue  # whoever makes a suspended object knows; a fleet of them would be a thousand lines
        if was is None or (was.status, was.reason) != (now.status, now.reason):
            notes.setdefault(now.reason, _note(kind, now))
    return tuple(notes.values())


def trial_ended(trial_name: str, result: TrialResult, label: str, why: str | None = None) -> EventNote | None:
    """That a trial ended, for its LlamaDeployment; None for those that put no promise to the question, and for a
    reference that was recorded.

    A candidate that fails is what a search is made of, so it is no warning; a measurement that was at fault is one, and
    so is a reference that cannot be recorded.
    ``label`` says what was measured: ``16 slots at 1.5/s``. ``why`` is the first cause with its identifier, as
    :func:`slotune.diagnose.findings.explain_result` has it; empty or None takes the verdict's reason.
    """
    verdict, records = result.verdict, result.trial.purpose is Purpose.REFERENCE
    if result.trial.purpose in {Purpose.SENTINEL, Purpose.FINALIST} or (records and result.passed):
        return None
    outcome = {
        Outcome.PASS: "TrialPassed",
        Outcome.FAIL: "TrialFailed",
        Outcome.INCONCLUSIVE: "TrialInconclusive",
        Outcome.INVALID: "TrialInvalid",
    }[verdict.outcome]
    code = verdict.code if result.failure is None else result.failure.value
    reason = said_in_public(why or verdict.reason)
    note = f"{label}: {verdict.outcome.value} ({word(code)}): {reason} [{trial_name}]"
    if records and verdict.outcome is Outcome.FAIL:
        note = f"{label}: {verdict.outcome.value} ({word(code)}): {_NO_REFERENCE}{reason}"
    warns = verdict.outcome is Outcome.INVALID or records
    return EventNote("Warning" if warns else "Normal", outcome, "MeasureCandidate", note, trial_name)


def event_object(
    note: EventNote, regarding: Mapping[str, Any], *, now: datetime, reporting_instance: str
) -> dict[str, Any]:
    """The ``events.k8s.io/v1`` object of a note.

    Args:
        note: what is said.
        regarding: reference to the object that it is about: apiVersion, kind, name, uid, and its namespace if it has
            one. Its event then lives there, else in ``default``, as the API server wants it.
        now: with time zone.
        reporting_instance: name of this operator's pod.
    """
    text = _within(line(note.note, MOST_NOTE_BYTES), MOST_NOTE_BYTES)
    reason, action = word(note.reason), word(note.action)
    identity = "\0".join([str(regarding.get("uid", "")), note.type, reason, action, text, line(note.about)])
    name = str(regarding["name"])[:_LONGEST_OBJECT_NAME].rstrip("-.")
    kept = ("apiVersion", "kind", "namespace", "name", "uid")
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{name}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
            "namespace": str(regarding.get("namespace") or "default"),
            "labels": {MANAGED_BY_LABEL: MANAGED_BY},
        },
        "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": note.type,
        "reason": reason,
        "action": action,
        "note": text,
        "regarding": {key: regarding[key] for key in kept if regarding.get(key)},
        "reportingController": _REPORTING_CONTROLLER,
        "reportingInstance": line(reporting_instance, 128) or "slotune",
    }


def _note(kind: ConditionType, found: Condition) -> EventNote:
    return EventNote(
        "Warning" if _is_bad_news(kind, found) else "Normal",
        found.reason,
        _ACTIONS.get(kind, "Reconcile"),
        found.message or f"{found.type} is {found.status}",
        f"{found.type}/{found.status}/{found.last_transition_time}/{found.observed_generation}",
    )


def _is_bad_news(kind: ConditionType, found: Condition) -> bool:
    if kind is ConditionType.SLO_MET:
        return found.status == "False"
    return kind is ConditionType.STALLED or (found.status != "True" and found.reason in BAD_NEWS)


def _within(text: str, most_bytes: int) -> str:
    """The text, cut to so many bytes of UTF-8."""
    encoded = text.encode()
    if len(encoded) <= most_bytes:
        return text
    return encoded[: most_bytes - len("…".encode())].decode(errors="ignore") + "…"
