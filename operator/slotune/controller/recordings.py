"""Recorded answers of a reference, as the cluster holds them: a ConfigMap that goes with the LlamaTrial that made them.

A comparison names the ConfigMap and the digest of what was recorded, so that nothing else in that place is taken for
it. A recording whose answers are gone counts as one that was at fault: it is made once more, and what was compared with
it still holds. Pure.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field

from slotune.api.labels import SANDBOX_MANAGER, STATUS_MANAGER
from slotune.api.v1alpha1 import LlamaTrial, TrialReference
from slotune.api.v1alpha1.meta import API_VERSION
from slotune.controller.actions import Apply
from slotune.controller.children import is_child
from slotune.controller.cluster import Object
from slotune.controller.conditions import timestamp
from slotune.controller.draft import Draft
from slotune.controller.events import EventNote
from slotune.quality.reference import BrokenReferenceError
from slotune.sandbox.job import REFERENCE_KEY
from slotune.sandbox.outcomes import invalid
from slotune.sandbox.reference_check import read_reference
from slotune.search.answers import ATTEMPTS
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, TrialResult
from slotune.tuning.trial_objects import completed_status, result_of
from slotune.verdict.verdicts import Outcome

__all__ = [
    "LostReference",
    "forget",
    "reference_config_map",
    "reference_manifest",
    "usable_references",
    "what_is_wrong",
]

REFERENCE_LOST = "ReferenceLost"
"""Code of a recording whose answers are not there any more."""
_AT_ONCE_S = 0.5


@dataclass(frozen=True, slots=True)
class LostReference:
    """A recording that can't be compared with."""

    trial: LlamaTrial = field(repr=False)
    """Which recorded it."""
    why: str
    """The beginning of a sentence."""


def reference_config_map(trial: str) -> str:
    """Name of the ConfigMap with the answers that a trial recorded."""
    return f"{trial}-reference"


def reference_manifest(raw: Object, owner: Object, data: bytes) -> Apply:
    """Keep what the trial ``raw`` recorded; ``owner`` is the reference to it."""
    metadata = raw["metadata"]
    manifest: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": reference_config_map(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": dict(metadata.get("labels") or {}),
            "ownerReferences": [owner],
        },
        "binaryData": {REFERENCE_KEY: base64.b64encode(data).decode()},
    }
    return Apply(manifest, SANDBOX_MANAGER)


def usable_references(problem: Problem, found: Sequence[tuple[LlamaTrial, TrialResult]]) -> tuple[TrialReference, ...]:
    """What comparisons may compare with, the one for the next of them last: all that hold what was recorded last.

    ``found``: trials of the search with their results, in the order in which they ended.
    """
    recorded = [
        TrialReference(config_map=reference_config_map(trial.metadata.name), digest=result.reference)
        for trial, result in found
        if result.trial.purpose is Purpose.REFERENCE
        and result.verdict.outcome is Outcome.PASS
        and result.trial.candidate.gpu_class in problem.hardware
        and result.trial.candidate.variant in problem.models
    ]
    return tuple(one for one in recorded if one.digest == recorded[-1].digest)


def what_is_wrong(config_map: Object | None, lost_from: LlamaTrial, digest: str) -> str:
    """Why the answers that a trial recorded are not in their ConfigMap; empty when they are."""
    name = reference_config_map(lost_from.metadata.name)
    if config_map is None:
        return f"ConfigMap {name} with the recorded answers is gone"
    if not is_child(config_map, str(lost_from.metadata.uid)):
        return f"ConfigMap {name} is not the one that holds the recorded answers"
    packed = (config_map.get("binaryData") or {}).get(REFERENCE_KEY)
    try:
        read_reference(base64.b64decode(packed or "", validate=True), digest)
    except (BrokenReferenceError, binascii.Error, TypeError, ValueError):
        return f"ConfigMap {name} does not hold any more what was recorded"
    return ""


def forget(draft: Draft, lost: LostReference) -> str:
    """Write down that a recording is of no use any more; what goes on, in words."""
    result = result_of(lost.trial)
    status = lost.trial.status
    assert result is not None
    assert status is not None
    words = f"{lost.why}: they are recorded again"
    if lost.trial.spec.attempt >= ATTEMPTS:
        words = (
            f"{lost.why}, and not for the first time: weights and KV types other than today's are set aside. Find out "
            "what deletes or changes ConfigMaps here, then set spec.rerun"
        )
    gone = invalid(result, REFERENCE_LOST, words)
    written = completed_status(
        gone,
        completed_at=status.completed_at or timestamp(draft.now),
        generation=lost.trial.metadata.generation,
        environment=status.environment,
        job_name=status.job_name,
    )
    metadata = lost.trial.metadata
    manifest: Object = {
        "apiVersion": API_VERSION,
        "kind": "LlamaTrial",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        "status": written.model_copy(update={"interruptions": status.interruptions}).to_manifest(),
    }
    draft.do(Apply(manifest, STATUS_MANAGER, subresource="status"))
    draft.note([EventNote("Warning", REFERENCE_LOST, "CompareAnswers", f"{words} [{metadata.name}]", metadata.name)])
    draft.look_again(_AT_ONCE_S)
    return words
